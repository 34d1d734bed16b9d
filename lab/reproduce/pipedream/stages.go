package pipedream

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

func init() {
	table.Register("pipedream-fig16", "PipeDream Figure 16: memory by stage on 4 GPUs against data parallelism",
		table.Uses{Profiles: true}, pipedreamFigure16)
	table.Register("pipedream-fig17", "PipeDream Figure 17: bytes for each training sample on 4 GPUs",
		table.Uses{Profiles: true}, pipedreamFigure17)
}

// fourGPUs holds a workload on four GPUs: its profile, its costs and its cut into stages for PipeDream's steady
// state.
type fourGPUs struct {
	p     *profile.Profile
	costs []profile.Cost // of a minibatch
	bench.Partition
}

func onFourGPUs(ctx context.Context, o table.Options, workload, preset string, batch int, replicas []int) (
	*fourGPUs, error,
) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := bench.New(o, workload, nil, preset)
	if err != nil {
		return nil, err
	}
	p, costs, err := b.Costs(batch)
	if err != nil {
		return nil, err
	}
	s, err := b.BestSplit(replicas, batch)
	if err != nil {
		return nil, err
	}
	return &fourGPUs{p, costs, s}, nil
}

// dataParallel returns the simulated memory of a device, in bytes, for data parallelism on four devices.
func dataParallel(b *bench.Bench, batch int) (int64, error) {
	pl, err := b.Stages([]int{len(b.M.Layers) - 1}, []int{4}, 4*batch, 1)
	if err != nil {
		return 0, err
	}
	pl.Schedule, pl.Stages[0].Warmup = "dp-overlap", 0
	q, err := b.Predict(pl)
	if err != nil {
		return 0, err
	}
	return slices.Max(q.MemoryBytes), nil
}

// straight returns the simulated memory of each stage of a straight pipeline, in bytes. `most` limits the number of
// minibatches in flight on a stage.
func straight(b *bench.Bench, last []int, batch, most int) ([]int64, error) {
	replicas := bench.Ones(len(last))
	pl, err := stream(b, last, replicas, batch, func(i int) int { return min(most, noam(replicas)(i)) })
	if err != nil {
		return nil, err
	}
	q, err := b.Predict(pl)
	return q.MemoryBytes, err
}

// optimizersCut returns the last layer of each stage of the straight pipeline that PipeDream's published optimizer
// plans.
func optimizersCut(ctx context.Context, b *bench.Bench, batch int) (last []int, err error) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		return nil, err
	}
	p, err := b.Profile(bench.SizesFor(batch, 0)...)
	if err != nil {
		return nil, err
	}
	pl, err := planner.Plan(ctx, plan.Request{Profile: p, Cluster: b.C, Batch: batch, MicroBatch: batch,
		Formula: "artifact", Set: map[string]string{"straight_pipeline": "on"}})
	if err != nil {
		return nil, err
	}
	for _, s := range pl.Stages {
		last = append(last, s.LastLayer)
	}
	return last, nil
}

func pipedreamFigure16(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 16 and section 5.5: drawn only; the text says that the worst stage is on " +
		"par with data parallelism"
	t.Notes = append(t.Notes, "simulated: the straight stream of four stages with stashed weights, NOAM minibatches in "+
		"flight, cut where the slowest stage is fastest; data parallelism whose all-reduce overlaps; SGD with momentum",
		"\"on par\" is read as at most a quarter more")
	chart := table.Chart{Title: "Memory of a device", X: "GiB", Lines: []table.Line{{Name: "data parallelism"},
		{Name: "stage 0"}, {Name: "stage 1"}, {Name: "stage 2"}, {Name: "stage 3"}}}
	for _, w := range []struct {
		name  string
		batch int
	}{{"vgg16", 64}, {"gnmt-8", 64}, {"gnmt-16", 64}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(o, w.name, nil, "pipedream-a:1x4")
		if err != nil {
			return err
		}
		all, err := dataParallel(b, w.batch)
		if err != nil {
			return err
		}
		cut, err := b.BestSplit(bench.Ones(4), w.batch)
		if err != nil {
			return err
		}
		stages, err := straight(b, cut.Last, w.batch, 4)
		if err != nil {
			return err
		}
		chart.Bars = append(chart.Bars, w.name)
		for i, bytes := range append([]int64{all}, stages...) {
			l := &chart.Lines[i]
			l.Y = append(l.Y, float64(bytes)/(1<<30))
			t.Rows = append(t.Rows, table.Row{What: w.name + ", " + l.Name, Paper: "drawn", Ours: terminal.Bytes(bytes),
				Difference: "-"})
		}
		over := func(stages []int64) float64 { return float64(slices.Max(stages)) / float64(all) }
		r := t.Bound(w.name+", worst stage over data parallelism", "at most", 1.25, over(stages))
		for most := 3; most >= 2; most-- {
			if stages, err = straight(b, cut.Last, w.batch, most); err != nil {
				return err
			}
			r.Ablate(fmt.Sprintf("at most %d minibatches in flight", most), over(stages), "%.2f")
		}
		if cut.Last, err = optimizersCut(ctx, b, w.batch); err != nil {
			return err
		}
		if stages, err = straight(b, cut.Last, w.batch, 4); err != nil {
			return err
		}
		r.Ablate("cut by the published optimizer", over(stages), "%.2f")
	}
	t.Charts = append(t.Charts, chart)
	return nil
}

// bytesOf holds a workload of Figure 17 and the bytes that the paper's text gives for it.
type bytesOf struct {
	name, preset string
	batch        int
	replicas     []int
	over         float64 // the pipeline's bytes divided by data parallelism's, from the text
	side         string  // "at most" or "at least" if `over` is a bound; empty if it is a value
}

// together reports whether the batch is the "batch size of 80" of section 5.1. It may be the batch of all GPUs
// together. In data parallelism, each of four GPUs then has a quarter of it.
func (w bytesOf) together() bool { return w.batch == 80 }

func pipedreamFigure17(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 17 and section 5: drawn only; the text gives AWD LM's 88 % less and S2VT's " +
		"85 %, far less for GNMT and VGG-16, more for ResNet-50"
	t.Notes = append(t.Notes, "data parallelism: 2 (m-1) W over all workers for m minibatches; pipelines: 2 a at each "+
		"boundary and their stages' all-reduces; the configuration of Table 1's row on 4 GPUs (S2VT's on Cluster-C), else "+
		"3-1, cut where the slowest stage is fastest", "\"far less\" is read as less than half")
	chart := table.Chart{Title: "MB for each training sample", X: "MB"}
	var all [2][]float64
	for _, w := range []bytesOf{
		{"vgg16", "pipedream-a:1x4", 64, []int{3, 1}, .5, "at most"},
		{"resnet50", "pipedream-a:1x4", 128, []int{3, 1}, 1, "at least"},
		{"gnmt-8", "pipedream-a:1x4", 64, bench.Ones(4), .5, "at most"},
		{"gnmt-16", "pipedream-a:1x4", 64, bench.Ones(4), .5, "at most"},
		{"awd-lm", "pipedream-a:1x4", 80, bench.Ones(4), .12, ""},
		{"s2vt", "pipedream-c:4", 80, []int{2, 1, 1}, .15, ""},
	} {
		f, err := onFourGPUs(ctx, o, w.name, w.preset, w.batch, w.replicas)
		if err != nil {
			return err
		}
		dp, pipeline := 2*3*float64(bench.ParameterBytes(f.p))/float64(4*w.batch), f.bytesPerSample(w.batch)
		chart.Bars = append(chart.Bars, w.name)
		all[0], all[1] = append(all[0], dp/1e6), append(all[1], pipeline/1e6)
		for what, bytes := range []float64{dp, pipeline} {
			t.Rows = append(t.Rows, table.Row{What: w.name + []string{", data parallelism", ", pipeline"}[what],
				Paper: "drawn", Ours: terminal.Bytes(int64(bytes)), Difference: "-"})
		}
		what := w.name + ", pipeline over data parallelism"
		var row *table.Row
		if w.side != "" {
			row = t.Bound(what, w.side, w.over, pipeline/dp)
		} else {
			row = t.Number(what, w.over, pipeline/dp, "%.2f", "").Ratio()
		}
		then := pipeline / dp
		if w.together() {
			then = pipeline / (4 * dp)
		}
		row.Ablate("a batch of 80 for all GPUs together", then, "%.2f")
	}
	for i, name := range []string{"data parallelism", "pipeline"} {
		chart.Lines = append(chart.Lines, table.Line{Name: name, Y: all[i]})
	}
	t.Charts = append(t.Charts, chart)
	return nil
}

// bytesPerSample returns the bytes that all stages send for one sample of a minibatch. It counts the all-reduces
// between replicas. At each boundary it counts the activations and as many bytes of gradients.
func (f *fourGPUs) bytesPerSample(batch int) float64 {
	sum, first := 0.0, 0
	for i, last := range f.Last {
		var weights int64
		for _, l := range f.p.Layers[first : last+1] {
			weights += l.ParameterBytes
		}
		r := float64(f.Replicas[i])
		sum += 2 * (r - 1) * float64(weights) / r
		if last < len(f.costs)-1 {
			sum += 2 * float64(f.p.CutBytes(f.costs, last))
		}
		first = last + 1
	}
	return sum / float64(batch)
}
