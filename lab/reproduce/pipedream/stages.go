package pipedream

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/profile"
)

func init() {
	table.Register("pipedream-fig16", "PipeDream Figure 16: memory by stage on 4 GPUs against data parallelism",
		table.Uses{Profiles: true}, pipedreamFigure16)
	table.Register("pipedream-fig17", "PipeDream Figure 17: bytes for each training sample on 4 GPUs",
		table.Uses{Profiles: true}, pipedreamFigure17)
}

// fourGPUs is a workload on four GPUs, cut for PipeDream's steady state.
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

func pipedreamFigure16(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 16 and section 5.5: drawn only; the text says that the worst stage is on " +
		"par with data parallelism"
	t.Notes = append(t.Notes, "straight pipelines of four; stage i of 4 stashes 4-i versions of its weights and "+
		"activations; gradients and momentum once; layers' activations as described")
	for _, w := range []struct {
		name  string
		batch int
		why   string
	}{
		{"vgg16", 64, "stages as fast as each other hold unequal shares: the first convolutions are a quarter of the work " +
			"and most of the activations, and stage 0 holds four minibatches of them"},
		{"gnmt-8", 64, "the paper says \"on par\" and prints no number; the later a stage, the fewer versions it stashes, " +
			"so that the fullest here holds less than a whole model with one"},
		{"gnmt-16", 64, "the paper says \"on par\" and prints no number; the later a stage, the fewer versions it stashes, " +
			"so that the fullest here holds less than a whole model with one"},
	} {
		f, err := onFourGPUs(ctx, o, w.name, "pipedream-a:1x4", w.batch, bench.Ones(4))
		if err != nil {
			return err
		}
		row := func(what string, bytes int64) {
			t.Rows = append(t.Rows, table.Row{What: w.name + ", " + what, Paper: "drawn", Ours: terminal.Bytes(bytes),
				Difference: "-"})
		}
		all, worst, first := f.stageBytes(0, len(f.costs)-1, 1), int64(0), 0
		row("data parallelism", all)
		for i, last := range f.Last {
			bytes := f.stageBytes(first, last, int64(4-i))
			worst = max(worst, bytes)
			row(fmt.Sprintf("stage %d", i), bytes)
			first = last + 1
		}
		t.Number(w.name+", worst stage over data parallelism", 1, float64(worst)/float64(all), "%.2f", w.why)
	}
	return nil
}

// stageBytes is what a stage holds with so many minibatches, and weights of so many, in flight.
func (f *fourGPUs) stageBytes(first, last int, inFlight int64) int64 {
	var n int64
	for l := first; l <= last; l++ {
		n += f.p.Layers[l].ParameterBytes*(inFlight+2) + f.costs[l].SavedBytes*inFlight
	}
	return n
}

// bytesOf is a row of Figure 17.
type bytesOf struct {
	name, preset string
	batch        int
	replicas     []int
	over         float64 // pipeline's bytes over data parallelism's, by the text
	side         string  // of a bound; "": over is a value
}

// together says whether section 5.1's batch of a workload, "batch size of 80", may be that of all GPUs together: data
// parallelism then has a quarter of it on each of four.
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
		row.Ablate("a batch of 80 is that of four GPUs together", then, "%.2f")
	}
	for i, name := range []string{"data parallelism", "pipeline"} {
		chart.Lines = append(chart.Lines, table.Line{Name: name, Y: all[i]})
	}
	t.Charts = append(t.Charts, chart)
	return nil
}

// bytesPerSample is what stages send each other and their replicas for a sample of a
// minibatch, a boundary's activations and as much of gradients.
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
