package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

const (
	probeMicros  = 64
	probeSteps   = 6
	besidePairs  = 7
	besideMicros = 16
	besideSteps  = 16
	besideCold   = 4 // steps with cold code and caches
	reduceBytes  = 16 << 20
	reduceRounds = 7
	leastRounds  = 3  // rounds that are made even if they take longer than reduceS
	reduceS      = 10 // seconds for the rounds after the first
	toldPairs    = 64 // a sum reports its progress about this many times
	copyBytes    = 4 << 20
	copyRounds   = 15
)

// Transfer implements timing.Timer. It measures what Wire measures, how much longer instructions take than their
// layers, and the speed of packing tensors.
func (t *Timer) Transfer(ctx context.Context) (*profile.Transfer, error) {
	out, err := t.Wire(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.beside(ctx, out); err != nil {
		return nil, err
	}
	out.Packing, err = t.packing()
	return out, err
}

// Wire measures only the wire between two workers of this process, in a fraction of the time of Transfer. The latency
// is the time from a send until a sleeping receiver begins the instruction that takes the message, while a model of
// negligible cost is trained. The bandwidth is that of the one copy that a transfer within a process makes.
func (t *Timer) Wire(ctx context.Context) (*profile.Transfer, error) {
	out := &profile.Transfer{}
	var err error
	if out.LatencyS, err = t.latency(ctx); err != nil {
		return nil, err
	}
	if out.BandwidthBytesPerSecond, err = t.bandwidth(); err != nil {
		return nil, err
	}
	return out, nil
}

// ones is the data set of the probe: every feature is 1, every target 0.
type ones struct{ features int }

func (o ones) Len() int { return 1 << 20 }

func (o ones) Batch(_, _, _, rows int) (data.Batch, error) {
	x := make([]float32, rows*o.features)
	for i := range x {
		x[i] = 1
	}
	return data.Batch{
		"input":  data.Array{Shape: []int{rows, o.features}, Floats: x},
		"target": data.Array{Shape: []int{rows}, Ints: make([]int64, rows)},
	}, nil
}

// probeModel returns a model of negligible cost: four layers, to be cut in the middle.
func probeModel() (*model.Model, error) {
	return model.Build("mlp", map[string]any{"inputs": 4, "hidden": []int{4, 4}, "classes": 2})
}

// probe trains a model of negligible cost, cut into two stages.
func (t *Timer) probe(ctx context.Context) (*trace.Timeline, error) {
	m, err := probeModel()
	if err != nil {
		return nil, err
	}
	// With one micro-batch at a time, the receiver is asleep when the message arrives.
	return t.pipeline(ctx, Pipeline{
		Model: m, Cut: len(m.Layers) / 2, InAdvance: 1, Samples: ones{4}, MicroBatches: probeMicros, Steps: probeSteps,
	})
}

func (t *Timer) latency(ctx context.Context) (float64, error) {
	tl, err := t.probe(ctx)
	if err != nil {
		return 0, err
	}
	sent := map[string]trace.Event{}
	for _, e := range tl.Events {
		if e.Kind == "SF" || e.Kind == "SB" {
			sent[e.Instruction] = e
		}
	}
	var took []float64
	for _, e := range tl.Events {
		if from, ok := sent[e.BlockedBy]; ok && e.Step > 0 && e.StartS > from.StartS {
			took = append(took, e.StartS-from.StartS)
		}
	}
	if len(took) == 0 {
		return 0, fmt.Errorf("measure: measuring: no message was waited for")
	}
	return stats.Median(took), nil
}

// bandwidth measures how fast a copy of a tensor is made for another worker, in bytes per second.
func (t *Timer) bandwidth() (float64, error) {
	var rate float64
	err := onThread(func() error {
		dev, err := t.engine.Open(0, 1)
		if err != nil {
			return err
		}
		defer dev.Close()
		x, err := dev.Full(t.engine.Float(), []int64{copyBytes / t.engine.Float().Size()}, 1)
		if err != nil {
			return err
		}
		var took []bracket
		for range copyRounds {
			begun := dev.Record()
			c, err := stage.Copy(dev, x)
			if err != nil {
				return err
			}
			took = append(took, bracket{begun, dev.Record()})
			c.Free()
		}
		rate = copyBytes / stats.Median(seconds(took))
		return nil
	})
	return rate, err
}

// onThread runs f on a new locked thread, as a worker does.
func onThread(f func() error) error {
	failed := make(chan error, 1)
	crash.Go(func() {
		(&place.Place{}).Settle(0)
		failed <- crash.Guard(f)
	})
	return <-failed
}

// AllReduce implements timing.Timer. It returns the bytes of a worker's vector, divided by the median time until the
// slowest worker has its sum. Sums that take long are repeated less often.
func (t *Timer) AllReduce(ctx context.Context, workers int, told func(timing.Summing)) (float64, error) {
	carriers, err := wire.InProcess(workers)
	if err != nil {
		return 0, err
	}
	ranks := make([]int, workers)
	for k := range ranks {
		ranks[k] = k
	}
	ports, err := wire.NewPorts(carriers, ranks, func(int) wire.Config { return wire.Config{} })
	if err != nil {
		return 0, err
	}
	defer ports.Close()
	var table wire.Table
	groups := make([]*collective.Group, workers)
	if err := collective.NameEdges(&table, 1, ranks, func(int) bool { return true }, false); err != nil {
		return 0, err
	}
	for k := range groups {
		if groups[k], err = collective.NewGroup(&table, ports.Port(k), 1, ranks, k); err != nil {
			return 0, err
		}
	}
	ports.Begin(1, table.Edges())()
	vectors := make([][]byte, workers)
	for k := range vectors {
		vectors[k] = make([]byte, reduceBytes)
	}
	var took []float64
	at := timing.Summing{Of: reduceRounds, Each: workers * (workers - 1)}
	for at.Sum = 1; at.Sum <= at.Of; at.Sum++ {
		start := time.Now()
		if err := t.reduce(ctx, ports, groups, vectors, at, told); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start).Seconds())
		at.Of = min(reduceRounds, max(leastRounds, 1+int(reduceS/took[0])))
	}
	return reduceBytes / stats.Median(took), nil
}

// reduce sums the vectors of all workers once, and reports its progress to `told`.
func (t *Timer) reduce(ctx context.Context, ports *wire.Ports, groups []*collective.Group, vectors [][]byte,
	at timing.Summing, told func(timing.Summing)) error {
	told(at)
	float := t.engine.Float()
	var pairs atomic.Int64
	sum := func(dst, src []byte, _ wire.DType) error {
		if n := int(pairs.Add(1)); n%max(1, at.Each/toldPairs) == 0 || n == at.Each {
			at := at
			at.Pairs = n
			told(at)
		}
		return t.engine.SumInto(dst, src, float)
	}
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for k := range groups {
		wg.Go(crash.Caught(func() {
			gradients := []wire.Buffer{{
				DType: wire.DTypeOf(float.String()), Shape: []int64{reduceBytes / float.Size()}, Data: vectors[k],
			}}
			if errs[k] = groups[k].AllReduce(ctx, gradients, sum); errs[k] != nil {
				ports.Fail(k, errs[k])
			}
		}))
	}
	wg.Wait()
	return errors.Join(errs...)
}
