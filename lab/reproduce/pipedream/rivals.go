package pipedream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
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

// stream is PipeDream's plan: a minibatch of each replica in turn, K in flight on stage i, weights stashed.
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

// noam is how many minibatches PipeDream admits for each replica of stage i (section 3.2).
func noam(replicas []int) func(int) int {
	return func(i int) int {
		behind := 0
		for _, r := range replicas[i:] {
			behind += r
		}
		return (behind + replicas[i] - 1) / replicas[i]
	}
}

// pipedreamFigure14 runs the configurations of Table 1 without pipelining, with it, and with replicas.
func pipedreamFigure14(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 14 and section 5.3: drawn only; the text gives 14.9 times model parallelism " +
		"for VGG-16 and 6.5 for AlexNet, at least 2 by pipelining alone, at most 1.8 by pipelining over hybrid parallelism"
	t.Notes = append(t.Notes, "16 GPUs of Cluster-A, minibatches of section 5.1; model and hybrid parallelism "+
		"are millrace's schedule mp, pipelines its 1f1b-rr with stashed weights, all simulated; straight pipelines are cut "+
		"where the slowest stage is fastest",
		"hybrid parallelism: the replicated configuration with one minibatch at a time, split over the replicas")
	for _, w := range []struct {
		name     string
		batch    int
		replicas []int
		faster   float64
	}{{"vgg16", 64, []int{15, 1}, 14.9}, {"alexnet", 256, []int{15, 1}, 6.5}, {"gnmt-8", 64, nil, 0},
		{"gnmt-16", 64, nil, 0}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(table.Options{}, w.name, nil, "pipedream-a:4x4")
		if err != nil {
			return err
		}
		straight := bench.Ones(min(16, len(b.M.Layers)-1))
		mp, pipelined, err := withoutAndWith(b, straight, w.batch)
		if err != nil {
			return err
		}
		t.Bound(w.name+", straight pipeline over model parallelism", "at least", 2, pipelined/mp)
		if w.replicas == nil {
			continue
		}
		hybrid, replicated, err := withoutAndWith(b, w.replicas, w.batch)
		if err != nil {
			return err
		}
		r := t.Number(w.name+", PipeDream over model parallelism", w.faster, replicated/mp, "%.1f",
			"model parallelism is on the straight pipeline's cut")
		r.Ratio()
		if err := fewerStages(b, r, w.batch, replicated); err != nil {
			return err
		}
		t.Bound(w.name+", PipeDream over hybrid parallelism", "at most", 1.8, replicated/hybrid)
	}
	return nil
}

// fewerStages adds what PipeDream is over model parallelism on fewer devices, which fewer transfers make faster.
func fewerStages(b *bench.Bench, r *table.Row, batch int, pipedream float64) error {
	for _, n := range []int{8, 4, 2} {
		mp, _, err := withoutAndWith(b, bench.Ones(n), batch)
		if err != nil {
			return err
		}
		r.Ablate(fmt.Sprintf("model parallelism has %d stages", n), pipedream/mp, "%.1f")
	}
	return nil
}

// withoutAndWith is samples a second of stages without pipelining and as PipeDream's stream.
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

func pipedreamGPipe(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), section 5.4"
	t.Notes = append(t.Notes, "straight pipelines of 16 on PipeDream's cuts, minibatches of 64; GPipe: all forwards, "+
		"then all backwards of as many minibatches as the depth, and a flush; simulated",
		"the largest depth: that at which no stage holds more than a device's 16 GB, without recomputing")
	for _, w := range []struct {
		preset        string
		noam, largest float64
	}{{"pipedream-a:4x4", 55, 35}, {"pipedream-b:2x8", 71, 42}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(table.Options{}, "gnmt-16", nil, w.preset)
		if err != nil {
			return err
		}
		replicas := bench.Ones(min(16, len(b.M.Layers)-1))
		s, err := b.BestSplit(replicas, 64)
		if err != nil {
			return err
		}
		pl, err := stream(b, s.Last, replicas, 64, noam(replicas))
		if err != nil {
			return err
		}
		pipedream, err := b.Predict(pl)
		if err != nil {
			return err
		}
		slower := func(depth int) (percent float64, fits bool, err error) {
			pl, err := b.Stages(s.Last, replicas, 64, depth)
			if err != nil {
				return 0, false, err
			}
			pl.Schedule = "afab"
			for i := range pl.Stages {
				pl.Stages[i].Warmup = depth
			}
			q, err := b.Predict(pl)
			if err != nil {
				return 0, false, err
			}
			fits = slices.Max(q.MemoryBytes) <= b.C.MemoryBytes(0)
			return 100 * (1 - q.SamplesPerSecond/pipedream.SamplesPerSecond), fits, nil
		}
		at, _, err := slower(len(replicas))
		if err != nil {
			return err
		}
		t.Number(w.preset+", % slower at depth NOAM", w.noam, at, "%.0f", gpipeWhy(len(replicas), len(replicas))).In("GPipe")
		most, err := bench.Largest(ctx, len(replicas), func(depth int) (bool, error) {
			_, fits, err := slower(depth)
			return fits && depth <= 1024, err
		})
		if err != nil {
			return err
		}
		at, _, err = slower(most)
		if err != nil {
			return err
		}
		r := t.Number(w.preset+", % slower at the largest depth", w.largest, at, "%.0f",
			gpipeWhy(len(replicas), most)).In("GPipe")
		for _, depth := range []int{24, 32, 48} {
			if at, _, err = slower(depth); err != nil {
				return err
			}
			r.Ablate(fmt.Sprintf("a largest depth of %d, not %d", depth, most), at, "%.0f")
		}
	}
	return nil
}

// gpipeWhy is the part of a GPipe step that S equal stages wait for M minibatches.
func gpipeWhy(stages, depth int) string {
	return fmt.Sprintf("%d equal stages that flush after %d minibatches wait for (S-1)/(M+S-1) = %.0f %% of the time",
		stages, depth, 100*float64(stages-1)/float64(depth+stages-1))
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
		for _, bytes := range q.MemoryBytes {
			gib = append(gib, fmt.Sprintf("%.1f", float64(bytes)/(1<<30)))
		}
		t.Rows = append(t.Rows, table.Row{What: fmt.Sprintf("depth %d, GiB by stage", depth), Paper: "drawn",
			Ours: strings.Join(gib, " "), Difference: "-"})
	}
	says := func(what string, holds bool) {
		t.Word(what, "yes", map[bool]string{true: "yes", false: "no"}[holds], "")
	}
	best := slices.Max(rates)
	says("depths of 4 and 7 are within 2 % of the fastest", rates[3] > .98*best && rates[6] > .98*best)
	says("throughput grows up to a depth of 4", slices.IsSorted(rates[:4]) && rates[3] > rates[0])
	says("memory grows from a depth of 2 to 7", slices.IsSorted(held[1:]) && held[6] > held[1])
	return nil
}
