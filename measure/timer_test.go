package measure_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/measure"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/stage/optim"
)

// samples is a data set whose numbers and classes depend only on their positions.
type samples struct {
	model   *model.Model
	classes int
}

func (s samples) Len() int { return 1000 }

func (s samples) Batch(step, _, firstRow, rows int) (data.Batch, error) {
	b := data.Batch{}
	for _, in := range s.model.Inputs {
		a := data.Array{Shape: append([]int{rows}, in.Shape...)}
		for k := range rows * int(in.Elements()) {
			if in.DType == model.Int {
				a.Ints = append(a.Ints, int64((7*step+3*firstRow+k)%s.classes))
			} else {
				a.Floats = append(a.Floats, float32((5*step+firstRow+k)%11)-5)
			}
		}
		b[in.Name] = a
	}
	return b, nil
}

func build(t *testing.T, family string, settings map[string]any) *model.Model {
	t.Helper()
	m, err := model.Build(family, settings)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func measured(t *testing.T, e engine.Engine, m *model.Model, classes int) *profile.Profile {
	t.Helper()
	timer, err := measure.NewTimer(e, samples{m, classes}, optim.Settings{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.999,
		Epsilon: 1e-8}, run.TrainPipeline(e, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := timing.Measure(t.Context(), m, timer, timing.Load{Concurrency: 2}, timing.Options{MicroBatches: []int{1, 4},
		Passes: 3, AtLeastS: 0.005})
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range p.Layers {
		for _, c := range layer.Costs {
			if c.BareForwardS == nil || *c.BareForwardS <= 0 || c.AgainS == nil || *c.AgainS <= 0 {
				t.Errorf("%s: computing again is not measured: %+v", layer.Name, c)
			}
			if fed := len(layer.Feeds) > 0; fed != (c.FeedS > 0) {
				t.Errorf("%s reads model inputs: %v; they are copied in %v s", layer.Name, fed, c.FeedS)
			}
			if c.ForwardS <= 0 || c.BackwardS <= 0 || c.OutputBytes <= 0 || c.SavedBytes < c.OutputBytes ||
				c.ForwardPeakBytes < c.SavedBytes {
				t.Errorf("%s: %+v", layer.Name, c)
			}
			// Only layers with weights have a split backward. The halves' times are not compared with 0, because the
			// input half of a first layer takes almost none.
			if split := layer.ParameterBytes > 0; split != (c.BackwardInputS != nil && c.BackwardWeightS != nil) {
				t.Errorf("%s splits: %v; its halves: %v and %v", layer.Name, split, c.BackwardInputS, c.BackwardWeightS)
			}
		}
		if (layer.UpdateS > 0) != (layer.ParameterBytes > 0) {
			t.Errorf("%s with %d bytes of parameters is updated in %v s", layer.Name, layer.ParameterBytes, layer.UpdateS)
		}
		if has := layer.ParameterBytes > 0; (layer.PulledUpdateS > 0) != has || (layer.ReferenceUpdateS > 0) != has {
			t.Errorf("%s with %d bytes of parameters is updated in %v s in a pipeline of elastic averaging, and its "+
				"reference in %v s for each",
				layer.Name, layer.ParameterBytes, layer.PulledUpdateS, layer.ReferenceUpdateS)
		}
	}
	if p.OptimizerStates != 2 || p.Concurrency != 2 {
		t.Error(p.OptimizerStates, p.Concurrency)
	}
	if x := p.Transfer; x.LatencyS <= 0 || x.BandwidthBytesPerSecond < 1e7 || x.AllReduceBytesPerSecond < 1e6 ||
		x.DispatchS < 0 || x.DispatchS > 1e-2 {
		t.Errorf("%+v", *x)
	}
	if x := p.Transfer; x.SendS <= 0 || x.ReceiveS <= 0 || max(x.DispatchS, x.SendS, x.ReceiveS) > 1e-2 {
		t.Errorf("%+v", *x)
	}
	return p
}

func TestTimerMeasuresEveryLayer(t *testing.T) {
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8, 8}, "classes": 4})
	p := measured(t, ref.New(), m, 4)
	// dense0's output is 4 rows of 8, in float64. It may be kept twice, before and after the ReLU.
	if c := p.Layers[0].Costs[1]; c.OutputBytes != 4*8*8 || c.SavedBytes < 4*8*8 || c.SavedBytes > 2*4*8*8+64 {
		t.Errorf("%+v", c)
	}
}

func TestTimerOnTorch(t *testing.T) {
	e, err := torch.Open()
	if err != nil {
		t.Skip("libtorch is not installed: ", err)
	}
	m := build(t, "gpt", map[string]any{"layers": 2, "width": 32, "heads": 2, "context": 16, "vocabulary": 30,
		"tied": true})
	p := measured(t, e, m, 30)
	if c := p.Layers[1].Costs[1]; c.OutputBytes != 4*16*32*4 {
		t.Errorf("%+v", c)
	}
}

func TestMeasuringCanBeStopped(t *testing.T) {
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8}, "classes": 4})
	timer, err := measure.NewTimer(ref.New(), samples{m, 4}, optim.Settings{Kind: optim.SGD},
		run.TrainPipeline(ref.New(), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	stop(why)
	if _, err := timing.Measure(ctx, m, timer, timing.Load{Concurrency: 2}, timing.Options{}); !errors.Is(err, why) &&
		!errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := measure.NewTimer(nil, nil, optim.Settings{}, nil, nil); err == nil {
		t.Error("a timer without an engine was made")
	}
}

// TestAllReduceSaysHowFarItIs: with three workers, a whole sum has six pairs of workers. In each pair, one worker has
// added the other worker's part.
func TestAllReduceSaysHowFarItIs(t *testing.T) {
	m := build(t, "mlp", nil)
	timer, err := measure.NewTimer(ref.New(), samples{m, 10}, optim.Settings{Kind: optim.SGD},
		run.TrainPipeline(ref.New(), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sums []int
	most := map[int]int{}
	if _, err := timer.AllReduce(t.Context(), 3, func(s timing.Summing) {
		mu.Lock()
		defer mu.Unlock()
		if s.Pairs == 0 {
			sums = append(sums, s.Sum)
		}
		most[s.Sum] = max(most[s.Sum], s.Pairs)
		if s.Each != 6 || s.Sum > s.Of {
			t.Errorf("%+v", s)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, sum := range sums {
		if sum != i+1 || most[sum] != 6 {
			t.Errorf("sum %d said %d of 6 pairs", sum, most[sum])
		}
	}
	if len(sums) < 3 {
		t.Errorf("%d sums", len(sums))
	}
}
