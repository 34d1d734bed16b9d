package pipedream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
)

func init() {
	table.Register("pipedream-fig14",
		"PipeDream Figure 14: model and hybrid parallelism, without and with pipelining, 16 GPUs",
		table.Uses{}, pipedreamFigure14)
	table.Register("pipedream-gpipe", "PipeDream section 5.4: GPipe at depth NOAM and at the largest depth, GNMT-16",
		table.Uses{}, pipedreamGPipe)
	table.Register("pipedream-fig18",
		"PipeDream Figure 18: pipeline depth against throughput and memory, GNMT-8 on 4 GPUs",
		table.Uses{}, pipedreamFigure18)
}

// stream returns PipeDream's plan with stashed weights. The replicas of a stage take minibatches in turn. Each replica
// of stage i has inFlight(i) minibatches in flight.
func stream(b *bench.Bench, last, replicas []int, minibatch int, inFlight func(stage int) int) (*plan.Plan, error) {
	pl, err := b.Stages(last, replicas, minibatch, 1)
	if err != nil {
		return nil, err
	}
	pl.Schedule, pl.Weights, pl.Replication = "1f1b-rr", "stash", "round_robin"
	for i := range pl.Stages {
		pl.Stages[i].Warmup = inFlight(i)
	}
	return pl, nil
}

// noam returns a function that maps a stage to the number of minibatches in flight for each of its replicas (PipeDream
// section 3.2).
func noam(replicas []int) func(int) int {
	return func(i int) int {
		behind := 0
		for _, r := range replicas[i:] {
			behind += r
		}
		return (behind + replicas[i] - 1) / replicas[i]
	}
}

// intraBatch is a workload of Figure 14 with its division on 16 GPUs.
type intraBatch struct {
	name     string
	batch    int
	replicas []int   // numbers of replicas; nil means that the optimizer chooses the straight pipeline
	faster   float64 // the text's speedup over model parallelism
}

// faster holds the gains of pipelining. `straight` is the straight cut's speed divided by model parallelism's.
// `replicated` is the speed of the configuration with replicas divided by model parallelism's. `hybrid` is that
// configuration's speed with pipelining divided by its speed without pipelining.
type faster struct{ straight, replicated, hybrid float64 }

// on computes the gains on a bench. Model parallelism has the stages of the straight cut. If `devices` is not 0, it has
// this number of stages.
func (w intraBatch) on(b *bench.Bench, devices int) (f faster, err error) {
	straight := bench.Ones(min(16, len(b.M.Layers)-1))
	mp, pipelined, err := withoutAndWith(b, straight, w.batch)
	if err == nil && devices > 0 {
		mp, _, err = withoutAndWith(b, bench.Ones(devices), w.batch)
	}
	if err != nil || w.replicas == nil {
		return faster{straight: pipelined / mp}, err
	}
	hybrid, replicated, err := withoutAndWith(b, w.replicas, w.batch)
	return faster{pipelined / mp, replicated / mp, replicated / hybrid}, err
}

// intra holds what is assumed for Figure 14 where the paper says nothing.
type intra struct {
	devices  int // devices of model parallelism; 0 means as many as the straight pipeline has
	bySize   kernels
	messages float64 // fraction of the wires' rate that messages between servers reach; 0 means all of it
	oneWay   bool    // a link carries messages one way at a time
}

var otherIntra = []table.Switch[intra]{
	{What: "model parallelism on 4 devices", To: func(a *intra) { a.devices = 4 }},
	{What: "model parallelism on 2 devices", To: func(a *intra) { a.devices = 2 }},
	{What: "small matrices slower, as cluster/types.yaml has them", To: func(a *intra) { a.bySize = allBySize }},
	{What: "small matrices slower, but not convolutions", To: func(a *intra) { a.bySize = butConvolutionsBySize }},
	{What: "messages between servers at 0.5 of the wires' rate", To: func(a *intra) { a.messages = .5 }},
	{What: "links carry messages one way at a time, as in 2 a / B", To: func(a *intra) { a.oneWay = true }},
}

// on returns the bench under these assumptions.
func (a intra) on(b *bench.Bench) (*bench.Bench, error) {
	b, err := a.bySize.on(b)
	if err == nil && a.messages > 0 {
		b = b.MessagesAt(a.messages)
	}
	if err == nil && a.oneWay {
		b = b.OneWay()
	}
	return b, err
}

// pipedreamFigure14 simulates Table 1's workloads without pipelining, with pipelining, and with pipelining and
// replicas.
func pipedreamFigure14(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 14 and section 5.3: drawn only; the text gives 14.9 times model parallelism " +
		"for VGG-16 and 6.5 for AlexNet, at least 2 by pipelining alone, at most 1.8 by pipelining over hybrid parallelism"
	t.Notes = append(t.Notes, "16 GPUs of Cluster-A, minibatches of section 5.1; model and hybrid parallelism "+
		"are millrace's schedule mp, pipelines its 1f1b-rr with stashed weights, all simulated; straight pipelines are cut "+
		"where the slowest stage is fastest",
		"hybrid parallelism: the replicated configuration with one minibatch at a time, split over the replicas")
	all := table.Combine(intra{}, otherIntra, len(otherIntra))
	table.Tries(t, all)
	bars := table.Chart{Title: "Times as fast as model parallelism", X: "times",
		Lines: []table.Line{{Name: "straight pipeline"}, {Name: "with replicas"}}}
	for _, w := range []intraBatch{{"vgg16", 64, []int{15, 1}, 14.9}, {"alexnet", 256, []int{15, 1}, 6.5},
		{"gnmt-8", 64, nil, 0}, {"gnmt-16", 64, nil, 0}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(table.Options{}, w.name, nil, "pipedream-a:4x4")
		if err != nil {
			return err
		}
		f, err := w.on(b, 0)
		if err != nil {
			return err
		}
		rows := []int{len(t.Rows)}
		t.Bound(w.name+", straight pipeline over model parallelism", "at least", 2, f.straight)
		bars.Bars = append(bars.Bars, w.name)
		bars.Lines[0].Y = append(bars.Lines[0].Y, f.straight)
		if w.replicas == nil {
			bars.Lines[1].Y = append(bars.Lines[1].Y, f.straight) // the straight pipeline is also the chosen configuration
		} else {
			bars.Lines[1].Y = append(bars.Lines[1].Y, f.replicated)
			rows = append(rows, len(t.Rows), len(t.Rows)+1)
			t.Number(w.name+", PipeDream over model parallelism", w.faster, f.replicated, "%.1f", "").
				Ratio().In("over model parallelism")
			t.Bound(w.name+", PipeDream over hybrid parallelism", "at most", 1.8, f.hybrid)
		}
		for _, other := range all {
			on, err := other.Assumed.on(b)
			if err != nil {
				return err
			}
			then, err := w.on(on, other.Assumed.devices)
			if err != nil {
				return err
			}
			for i, v := range []float64{then.straight, then.replicated, then.hybrid}[:len(rows)] {
				t.Rows[rows[i]].Ablate(other.What, v, "%.2f")
			}
		}
	}
	t.Charts = append(t.Charts, bars)
	return nil
}

// withoutAndWith returns the samples per second of the same stages: without pipelining, and with PipeDream's stream of
// minibatches.
func withoutAndWith(b *bench.Bench, replicas []int, minibatch int) (mp, pipelined float64, err error) {
	s, err := b.BestSplit(replicas, minibatch)
	if err != nil {
		return 0, 0, err
	}
	alone, err := b.Stages(s.Last, replicas, minibatch*slices.Max(replicas), 1)
	if err != nil {
		return 0, 0, err
	}
	alone.Schedule = "mp"
	without, err := b.Predict(alone)
	if err != nil {
		return 0, 0, err
	}
	pl, err := stream(b, s.Last, replicas, minibatch, noam(replicas))
	if err != nil {
		return 0, 0, err
	}
	with, err := b.Predict(pl)
	return without.SamplesPerSecond, with.SamplesPerSecond, err
}

// gpipe computes how much slower GPipe is than PipeDream's stream on the same stages. The slowdown depends on GPipe's
// depth, the number of micro-batches in a step.
type gpipe struct {
	b         *bench.Bench
	last      []int
	replicas  []int
	pipedream float64 // samples/s
}

const gpipeMinibatch = 64

func newGPipe(b *bench.Bench) (*gpipe, error) {
	replicas := bench.Ones(min(16, len(b.M.Layers)-1))
	s, err := b.BestSplit(replicas, gpipeMinibatch)
	if err != nil {
		return nil, err
	}
	pl, err := stream(b, s.Last, replicas, gpipeMinibatch, noam(replicas))
	if err != nil {
		return nil, err
	}
	q, err := b.Predict(pl)
	return &gpipe{b, s.Last, replicas, q.SamplesPerSecond}, err
}

// at returns GPipe's slowdown in percent at a depth, and whether GPipe fits in every device's memory.
func (g *gpipe) at(depth int) (percent float64, fits bool, err error) {
	pl, err := g.b.Stages(g.last, g.replicas, gpipeMinibatch, depth)
	if err != nil {
		return 0, false, err
	}
	pl.Schedule = "afab"
	for i := range pl.Stages {
		pl.Stages[i].Warmup = depth
	}
	q, err := g.b.Predict(pl)
	if err != nil {
		return 0, false, err
	}
	return 100 * (1 - q.SamplesPerSecond/g.pipedream), slices.Max(q.MemoryBytes) <= g.b.C.MemoryBytes(0), nil
}

// equalStages returns GPipe's simulated slowdown in percent if all stages take the same time. PipeDream's stream then
// has no bubble (Figure 4).
func equalStages(stages, depth int) (float64, error) {
	s := schedule.Settings{MicroBatches: depth}
	for w := range stages {
		s.Placement = append(s.Placement, []int{w})
	}
	p, err := family.Generate("afab", s)
	if err != nil {
		return 0, err
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		return 0, err
	}
	_, sum, err := sim.Run(p, sim.Uniform(stages, 1, 2, 0), sim.Options{})
	return 100 * sum.Bubble, err
}

func pipedreamGPipe(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), section 5.4"
	t.Notes = append(t.Notes, "straight pipelines of 16 on PipeDream's cuts, minibatches of 64; GPipe: all forwards, "+
		"then all backwards of as many minibatches as the depth, and a flush; simulated",
		"the largest depth: that at which no stage holds more than a device's 16 GB, without recomputing",
		"equal stages: simulated with a backward of twice a forward and free transfers")
	for _, w := range []struct {
		preset        string
		noam, largest float64
	}{{"pipedream-a:4x4", 55, 35}, {"pipedream-b:2x8", 71, 42}} {
		b, err := bench.New(table.Options{}, "gnmt-16", nil, w.preset)
		if err != nil {
			return err
		}
		g, err := newGPipe(b)
		if err != nil {
			return err
		}
		bySize, err := b.BySize()
		if err != nil {
			return err
		}
		sized, err := newGPipe(bySize)
		if err != nil {
			return err
		}
		most, err := bench.Largest(ctx, 1, func(depth int) (bool, error) {
			_, fits, err := g.at(depth)
			return fits && depth <= 1024, err
		})
		if err != nil {
			return err
		}
		for _, d := range []struct {
			what  string
			paper float64
			depth int
		}{{"depth NOAM", w.noam, len(g.replicas)}, {"the largest depth", w.largest, most}} {
			percent, _, err := g.at(d.depth)
			if err != nil {
				return err
			}
			r := t.Number(fmt.Sprintf("%s, %% slower at %s, %d", w.preset, d.what, d.depth), d.paper, percent, "%.0f", "")
			r.In(w.preset)
			equal, err := equalStages(len(g.replicas), d.depth)
			if err != nil {
				return err
			}
			r.Ablate("all stages are equal", equal, "%.0f")
			if percent, _, err = sized.at(d.depth); err != nil {
				return err
			}
			r.Ablate("small matrices slower, as cluster/types.yaml has them", percent, "%.0f")
		}
	}
	return nil
}

func pipedreamFigure18(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 18 and section 5.5: drawn only; the text says that depths of 4 (NOAM) and 7 " +
		"have the highest throughput, and that memory grows with the depth"
	t.Notes = append(t.Notes, "a straight pipeline of four, minibatches of 64; a depth of D keeps at most D minibatches "+
		"in flight in the first stage, and one less in each that follows, never less than one; simulated")
	b, err := bench.New(table.Options{}, "gnmt-8", nil, "pipedream-a:1x4")
	if err != nil {
		return err
	}
	s, err := b.BestSplit(bench.Ones(4), 64)
	if err != nil {
		return err
	}
	var rates []float64
	var held []int64
	throughput := table.Chart{Title: "Throughput by depth", X: "depth", Y: "samples/s",
		Lines: []table.Line{{Name: "ours"}}}
	memory := table.Chart{Title: "Memory by depth", X: "depth", Y: "GiB", Lines: make([]table.Line, 4)}
	for depth := 1; depth <= 7; depth++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		pl, err := stream(b, s.Last, bench.Ones(4), 64, func(i int) int { return max(1, depth-i) })
		if err != nil {
			return err
		}
		q, err := b.Predict(pl)
		if err != nil {
			return err
		}
		rates, held = append(rates, q.SamplesPerSecond), append(held, slices.Max(q.MemoryBytes))
		t.Number(fmt.Sprintf("depth %d, samples/s", depth), 0, q.SamplesPerSecond, "%.0f", "")
		var gib []string
		add := func(l *table.Line, y float64) { l.X, l.Y = append(l.X, float64(depth)), append(l.Y, y) }
		add(&throughput.Lines[0], q.SamplesPerSecond)
		for i, bytes := range q.MemoryBytes {
			gib = append(gib, fmt.Sprintf("%.1f", float64(bytes)/(1<<30)))
			memory.Lines[i].Name = fmt.Sprintf("stage %d", i)
			add(&memory.Lines[i], float64(bytes)/(1<<30))
		}
		t.Rows = append(t.Rows, table.Row{What: fmt.Sprintf("depth %d, GiB by stage", depth), Paper: "drawn",
			Ours: strings.Join(gib, " "), Difference: "-"})
	}
	t.Charts = append(t.Charts, throughput, memory)
	best := slices.Max(rates)
	t.Says("depths of 4 and 7 are within 2 % of the fastest", rates[3] > .98*best && rates[6] > .98*best)
	t.Says("throughput grows up to a depth of 4", slices.IsSorted(rates[:4]) && rates[3] > rates[0])
	t.Says("memory grows from a depth of 2 to 7", slices.IsSorted(held[1:]) && held[6] > held[1])
	return nil
}
