package dapple

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

func init() {
	table.Register("dapple-fig11", "DAPPLE Figure 11: speedups of pipeline and data parallelism over batches",
		table.Uses{Profiles: true}, dappleFigure11)
}

// figure11Batches holds each workload's global batches: the largest on the figure's axis, and powers of two below it.
var figure11Batches = map[string][]int{
	"vgg19": {128, 256, 512, 1024, 2048, 4096}, "gnmt-16": {128, 256, 512, 1024, 2048, 4096},
	"bert-48": {32, 64, 128, 256}, "xlnet-36": {32, 64, 128, 256}, "amoebanet-36": {128, 256, 512, 1024},
}

// ways holds the speedups of three ways to train at a global batch. `hybrid` is for a plan of several stages, and
// `plain` is for data parallelism. `overlapped` is for data parallelism whose all-reduce overlaps the backward.
type ways struct{ hybrid, plain, overlapped float64 }

// gain returns the larger of `hybrid` and `overlapped`, divided by `overlapped`.
func (w ways) gain() float64 { return max(w.hybrid, w.overlapped) / w.overlapped }

// better names the faster one of `hybrid` and `overlapped`.
func (w ways) better() string {
	if w.hybrid > w.overlapped {
		return "hybrid"
	}
	return "DP"
}

// mostMicroBatches is the largest number of micro-batches in a simulated step. A larger batch gets larger
// micro-batches.
const mostMicroBatches = 64

// threeWays returns the speedups at a global batch on all devices. `shape` is the hybrid plan in the paper's notation.
// In data parallelism, a device accumulates gradients over micro-batches of the profiled size, and the all-reduce can
// overlap only the last backward.
func threeWays(b *bench.Bench, r dappleRow, shape string, batch int) (w ways, err error) {
	n := len(b.C.Devices)
	each := max(1, batch/n)
	micro := min(r.MicroBatch, each)
	step, compute, err := b.WaitFree(n, micro)
	if err != nil {
		return w, err
	}
	p, _, err := b.Costs(micro)
	if err != nil {
		return w, err
	}
	times := float64(each) / float64(micro)
	alone := float64(n) * times * compute
	w.overlapped = alone / ((times-1)*compute + step)
	w.plain = alone / (times*compute + b.AllReduceS(bench.Firsts(n), bench.ParameterBytes(p)))
	replicas, size := bench.Ones(n), 2
	if shape != "straight" {
		var first, second int
		if _, err := fmt.Sscanf(shape, "%d:%d", &first, &second); err != nil {
			return w, fmt.Errorf("plan %q: %w", shape, err)
		}
		replicas, size = []int{first, second}, 8
	}
	size = max(size, batch/mostMicroBatches)
	s, err := b.BestSplit(replicas, size)
	if err != nil {
		return w, err
	}
	pl, err := b.Stages(s.Last, replicas, size, batch/size)
	if err != nil {
		return w, err
	}
	sum, err := b.Run(pl)
	w.hybrid = alone / sum.StepS
	return w, err
}

// hybridOn returns the plan of the figure's hybrid line. It is Table 4's plan on this preset. If that is data
// parallelism, it is Table 4's plan for the same model on Config-C.
func (r dappleRow) hybridOn(preset string) string {
	if shape := r.Plans[preset]; shape != "DP" {
		return shape
	}
	return r.Plans["dapple-c"]
}

// alongBatches returns the speedups of the three ways for each batch on the figure's axis.
func alongBatches(ctx context.Context, b *bench.Bench, r dappleRow, preset string) (map[int]ways, error) {
	all := map[int]ways{}
	for _, batch := range figure11Batches[r.Workload] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w, err := threeWays(b, r, r.hybridOn(preset), batch)
		if err != nil {
			return nil, err
		}
		all[batch] = w
	}
	return all, nil
}

// draw adds a chart and rows for a model on a cluster.
func draw(t *table.Table, r dappleRow, preset string, all map[int]ways) {
	c := table.Chart{Title: r.Workload + " on " + preset, X: "global batch", Y: "speed-up", Log: true}
	for _, l := range []struct {
		name string
		of   func(ways) float64
	}{{"hybrid " + r.hybridOn(preset), func(w ways) float64 { return w.hybrid }},
		{"DP no overlap", func(w ways) float64 { return w.plain }},
		{"DP overlap", func(w ways) float64 { return w.overlapped }}} {
		if r.Workload == "amoebanet-36" && !strings.HasPrefix(l.name, "hybrid") {
			continue // data parallelism does not fit in memory
		}
		line := table.Line{Name: l.name}
		var words []string
		for _, batch := range figure11Batches[r.Workload] {
			v := l.of(all[batch])
			line.X, line.Y = append(line.X, float64(batch)), append(line.Y, v)
			words = append(words, fmt.Sprintf("%.1f", v))
		}
		c.Lines = append(c.Lines, line)
		t.Rows = append(t.Rows, table.Row{What: c.Title + ", " + l.name, Paper: "drawn", Ours: strings.Join(words, " "),
			Difference: "-"})
	}
	t.Charts = append(t.Charts, c)
}

func dappleFigure11(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Figure 11 and section 6.3: drawn only; the text gives the mean gain over overlapped " +
		"data parallelism at a batch of 128, and which plan is best"
	t.Notes = append(t.Notes, "hybrid: the plan of Table 4, cut where its slowest stage is fastest, simulated; DP: "+
		"accumulation over micro-batches of Table 1's profile, the last one's backward pass overlapped or not; global "+
		"batches: powers of two up to the end of the figure's axis, from 128, for BERT and XLNet from 32; DP of "+
		"AmoebaNet-36 does not fit",
		"the better: which of hybrid and overlapped DP is faster at the batch of Table 4")
	var paper dappleTable
	if err := table.Read(files, "table4", &paper); err != nil {
		return err
	}
	gain := map[string]float64{"dapple-a": 1.71, "dapple-b": 1.37, "dapple-c": 1.79}
	for _, preset := range []string{"dapple-a", "dapple-b", "dapple-c"} {
		var asIs, slower, all, own []float64 // gains, one for each model
		for _, r := range paper.Rows {
			if r.Workload == "resnet50" {
				continue
			}
			b, err := bench.New(o, r.Workload, nil, preset)
			if err != nil {
				return err
			}
			along, err := alongBatches(ctx, b, r, preset)
			if err != nil {
				return err
			}
			draw(t, r, preset, along)
			if r.Workload == "amoebanet-36" {
				continue
			}
			bySize, err := b.BySize()
			if err != nil {
				return err
			}
			then := map[int]ways{}
			for _, batch := range []int{128, r.Batch} {
				if then[batch], err = threeWays(bySize, r, r.hybridOn(preset), batch); err != nil {
					return err
				}
			}
			better := "hybrid"
			if r.Plans[preset] == "DP" {
				better = "DP"
			}
			last := along[slices.Max(figure11Batches[r.Workload])]
			row := t.Word(fmt.Sprintf("%s (%d) on %s, the better", r.Workload, r.Batch, preset), better,
				along[r.Batch].better(), "").Crossover()
			row.AblateWord(slowSmall, then[r.Batch].better())
			row.AblateWord(largestBatch, last.better())
			row.AblateWord(ownBatch, along[r.Batch].better())
			asIs, slower = append(asIs, along[128].gain()), append(slower, then[128].gain())
			all, own = append(all, last.gain()), append(own, along[r.Batch].gain())
			if r.Workload == "gnmt-16" && preset == "dapple-c" {
				row := t.Number("gnmt-16 on dapple-c, gain of the best over DP overlap", 2.32, along[128].gain(), "%.2f", "")
				row.Ratio().Ablate(slowSmall, then[128].gain(), "%.2f")
				row.Ablate(largestBatch, last.gain(), "%.2f")
				row.Ablate(ownBatch, along[r.Batch].gain(), "%.2f")
			}
		}
		row := t.Number(preset+", mean gain of the best over DP overlap", gain[preset], stats.Mean(asIs), "%.2f", "")
		row.Ratio().In("mean gain").Ablate(slowSmall, stats.Mean(slower), "%.2f")
		row.Ablate(largestBatch, stats.Mean(all), "%.2f")
		row.Ablate(ownBatch, stats.Mean(own), "%.2f")
	}
	return nil
}

// The assumptions that Figure 11 switches in every row.
const (
	slowSmall    = "small matrices slower, as cluster/types.yaml has them"
	largestBatch = "the largest batch of the figure"
	ownBatch     = "each model's batch of Table 4, not 128"
)
