package avgpipe

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func init() {
	table.Register("avgpipe-fig11", "AvgPipe Figure 11: each baseline's time against AvgPipe's at its memory",
		table.Uses{}, figure11)
	table.Register("avgpipe-fig12", "AvgPipe Figure 12: memory of the baselines, and of AvgPipe held to it",
		table.Uses{}, figure12)
	table.Register("avgpipe-fig13",
		"AvgPipe Figure 13: utilisation under the baselines and under AvgPipe at their memory", table.Uses{}, figure13)
}

// compared is a training, with what section 7.1 says about it. A field is zero if the paper does not print its value.
type compared struct {
	Training     training           `yaml:",inline"`
	MicroBatches int                `yaml:"micro_batches"`
	Faster       map[string]float64 `yaml:"faster"` // by baseline: AvgPipe's speedup over it, within its memory
	FromMeans    []string           `yaml:"from_means"`
	Degrees      map[string]string  `yaml:"degrees"` // by baseline: AvgPipe's degrees within its memory
	Slowest      string             `yaml:"slowest"`
	Fastest      string             `yaml:"fastest"`       // the fastest pipeline
	OutOfMemory  string             `yaml:"out_of_memory"` // the baseline that runs out of memory
	MostMemory   string             `yaml:"most_memory"`
	LeastMemory  string             `yaml:"least_memory"` // the baseline that needs the least memory
	Of2BW        float64            `yaml:"of_2bw"`       // ratio of AvgPipe's memory to PipeDream-2BW's, which limits it
	TogetherGB   float64            `yaml:"together_gb"`  // data parallelism needs at least this much, summed over GPUs
	MoreUsed     float64            `yaml:"more_used"`
}

const (
	dataParallelism = "data parallelism"
	bounded         = "PipeDream-2BW"
	multiVersion    = "PipeDream"
)

// comparison has a training's baselines under some assumptions, and AvgPipe's settings under the same assumptions.
type comparison struct {
	of        compared
	load      *avgpipe.Workload
	baselines []avgpipe.Baseline
	settings  avgpipe.Settings
	rows      []avgpipe.EqualMemory // for each baseline, AvgPipe within the total memory of its devices
}

func (w compared) in(ctx context.Context, x world) (*comparison, error) {
	load, sizes, err := x.load(ctx, w.Training, w.MicroBatches)
	if err != nil {
		return nil, err
	}
	c := &comparison{of: w, load: load}
	if c.baselines, err = load.Baselines(ctx, w.MicroBatches); err != nil {
		return nil, err
	}
	grid, err := avgpipe.Grid(w.Training.Batch, sizes, w.Training.Pipelines)
	if err != nil {
		return nil, err
	}
	if c.settings, err = load.Settings(ctx, grid); err != nil {
		return nil, err
	}
	c.rows, err = c.held(func(b avgpipe.Baseline) avgpipe.Budget { return b.Needs(true) })
	return c, err
}

// held returns, for each baseline, AvgPipe's setting within a budget. The function `to` computes the budget from the
// baseline.
func (c *comparison) held(to func(avgpipe.Baseline) avgpipe.Budget) (rows []avgpipe.EqualMemory, err error) {
	for _, b := range c.baselines {
		row, err := c.settings.Within(b, to(b), c.load.LimitBytes)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// named returns the row of a baseline, or nil if there is none.
func named(rows []avgpipe.EqualMemory, name string) *avgpipe.EqualMemory {
	i := slices.IndexFunc(rows, func(r avgpipe.EqualMemory) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// together returns the sum of the memory of all devices.
func together(bytes []int64) int64 { return avgpipe.Scored{MemoryBytes: bytes}.Together() }

// budgets lists budgets for AvgPipe that replace the usual one. The usual budget is the total memory of a baseline's
// devices.
var budgets = []struct {
	what string
	of   func(avgpipe.Baseline) avgpipe.Budget
}{
	{"held to the baseline's fullest GPU", func(b avgpipe.Baseline) avgpipe.Budget { return b.Needs(false) }},
	{"no limit but the GPUs' memory", func(avgpipe.Baseline) avgpipe.Budget { return avgpipe.Budget{} }},
}

// switched holds a comparison's rows under changed assumptions.
type switched struct {
	what string
	rows []avgpipe.EqualMemory
	of   int // number of changed assumptions
}

// otherwise repeats the comparison under the assumptions of each world in `all`, with the usual budget and with each of
// the other budgets. Under the assumptions of c, it repeats the comparison with each of the other budgets.
func (c *comparison) otherwise(ctx context.Context, t *table.Table, all []world) ([]switched, error) {
	var out []switched
	for _, b := range budgets {
		rows, err := c.held(b.of)
		if err != nil {
			return nil, err
		}
		out = append(out, switched{b.what, rows, 1})
	}
	others := make([]*comparison, len(all))
	err := atOnce(len(all), func(i int) (err error) {
		others[i], err = c.of.in(ctx, all[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, x := range all {
		out = append(out, switched{x.String(), others[i].rows, x.switches()})
		for _, b := range budgets {
			rows, err := others[i].held(b.of)
			if err != nil {
				return nil, err
			}
			out = append(out, switched{x.String() + ", " + b.what, rows, x.switches() + 1})
		}
	}
	for _, o := range out {
		t.Try(o.what, o.of)
	}
	return out, nil
}

// worldsOf returns the changed assumptions to try for a training.
func (w compared) worldsOf() []world {
	switch w.Training.Name {
	case "bert":
		return append(slices.Clone(worlds), world{positions: 128})
	case "awd-lm":
		return append(slices.Clone(worlds), world{untied: true})
	}
	return worlds
}

// asDescribed is the name of a comparison without changed assumptions.
const asDescribed = ""

// eachComparison calls `yield` with each training of Figures 11 to 13, and with its comparison without changed
// assumptions. It returns the number of trainings.
func eachComparison(ctx context.Context, t *table.Table, yield func(w compared, c *comparison) error) (int, error) {
	trainings, err := ofTrainings[compared](t, "fig11")
	if err != nil {
		return 0, err
	}
	for _, w := range trainings {
		c, err := w.in(ctx, world{})
		if err == nil {
			err = yield(w, c)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(trainings), nil
}

func figure11(ctx context.Context, _ table.Options, t *table.Table) error {
	sum := summary{by: map[string]*counts{}}
	trainings, err := eachComparison(ctx, t, func(w compared, c *comparison) error {
		others, err := c.otherwise(ctx, t, w.worldsOf())
		if err != nil {
			return err
		}
		for _, r := range c.rows {
			if !r.Fits {
				continue
			}
			if err := w.speedup(ctx, t, c, r, others); err != nil {
				return err
			}
		}
		t.Charts = append(t.Charts, c.chart("s for a batch",
			func(r avgpipe.EqualMemory) float64 { return r.Predicted.StepS },
			func(p *avgpipe.Pipelined) float64 { return p.StepS }))
		w.ranks(t, c, others)
		w.chosen(t, c, others)
		for _, o := range append([]switched{{asDescribed, c.rows, 0}}, others...) {
			sum.add(w, o)
		}
		return nil
	})
	if err != nil {
		return err
	}
	sum.rows(t, trainings)
	t.Notes = append(t.Notes, "times are of a batch, and so are speedups; the paper's are of training to a target, "+
		"which counts besides that PipeDream needs more epochs (Figure 14)",
		"if data parallelism's is its all-reduce: its batch takes no less than its gradients do over the wires, and the "+
			"paper's speedup over it leaves AvgPipe so long a batch; ours is what its pipelines compute and send. PipeDream's "+
			"samples: what the text's time leaves to statistical efficiency, which is less than others' for AWD",
		"memory is that of all GPUs together, as the text's is: data parallelism's for BERT is more than a GPU has")
	return nil
}

// speedup adds the row of one baseline.
func (w compared) speedup(ctx context.Context, t *table.Table, c *comparison, r avgpipe.EqualMemory,
	others []switched) error {
	what := fmt.Sprintf("%s, AvgPipe over %s", w.Training.Name, r.Name)
	if slices.Contains(w.FromMeans, r.Name) {
		what += " (paper's from means)"
	}
	var row *table.Row
	if r.AvgPipe == nil {
		row = t.Word(what, fmt.Sprintf("%.2fx", w.Faster[r.Name]), "nothing fits", "")
	} else {
		row = t.Number(what+" at "+r.AvgPipe.At.String(), w.Faster[r.Name], r.Speedup(), "%.2fx", "").Ratio().
			In(w.Training.Name)
	}
	for _, o := range others {
		if other := named(o.rows, r.Name); other != nil && other.AvgPipe != nil {
			row.Ablate(o.what, other.Speedup(), "%.2fx at "+other.AvgPipe.At.String())
		}
	}
	switch {
	case r.AvgPipe == nil:
	case r.Name == dataParallelism:
		each, err := w.batchOfEach(ctx)
		if err != nil {
			return err
		}
		row.Ablate("the batch is each GPU's under data parallelism", each/r.AvgPipe.StepS,
			"%.2fx at "+r.AvgPipe.At.String())
		wires := c.load.Cluster.AllReduceS(bench.Firsts(len(c.load.Cluster.Devices)), bench.ParameterBytes(c.load.Profile))
		t.Rows = append(t.Rows, table.Row{What: w.Training.Name + ", AvgPipe's batch if data parallelism's is its all-reduce",
			Paper: fmt.Sprintf("%.1f s", wires/w.Faster[r.Name]), Ours: fmt.Sprintf("%.1f s", r.AvgPipe.StepS),
			Difference: "-"})
	case r.Name == multiVersion:
		t.Rows = append(t.Rows, table.Row{
			What:  w.Training.Name + ", samples of PipeDream over AvgPipe's, if the text's time holds",
			Paper: "not printed", Ours: fmt.Sprintf("%.2f times", w.Faster[r.Name]/r.Speedup()), Difference: "-"})
	}
	return nil
}

// batchOfEach returns data parallelism's time for a batch, in seconds, if every GPU has a batch of its own. It is the
// time of a step, divided by the number of GPUs.
func (w compared) batchOfEach(ctx context.Context) (float64, error) {
	load, _, err := world{}.load(ctx, w.Training, w.MicroBatches)
	if err != nil {
		return 0, err
	}
	gpus := len(load.Cluster.Devices)
	load.Batch *= gpus
	dp, ok := load.DataParallel(ctx)
	if !ok {
		return 0, fmt.Errorf("%s has no data parallelism", w.Training.Name)
	}
	return dp.Predicted.StepS / float64(gpus), nil
}

// ranks adds rows that name the slowest baseline, the fastest pipeline and the baseline without enough memory, as far
// as the text names them.
func (w compared) ranks(t *table.Table, c *comparison, others []switched) {
	name := w.Training.Name
	if w.Slowest != "" {
		t.Word(name+", the slowest baseline", w.Slowest, slowest(c.rows), "")
	}
	if w.Fastest != "" {
		row := t.Word(name+", the fastest pipeline of the baselines", w.Fastest, fastest(c.rows), "")
		instead(row, others, fastest)
	}
	if w.OutOfMemory != "" {
		fits := func(rows []avgpipe.EqualMemory) string {
			if r := named(rows, w.OutOfMemory); r != nil && r.Fits {
				return "fits"
			}
			return "out of memory"
		}
		row := t.Word(name+", "+w.OutOfMemory, "out of memory", fits(c.rows), "")
		instead(row, others, fits)
	}
}

func slowest(rows []avgpipe.EqualMemory) string {
	return slices.MaxFunc(rows, byTime).Name
}

// fastest returns the fastest baseline that is a pipeline and fits.
func fastest(rows []avgpipe.EqualMemory) string {
	pipelines := slices.DeleteFunc(slices.Clone(rows), func(r avgpipe.EqualMemory) bool {
		return r.Name == dataParallelism || !r.Fits
	})
	return slices.MinFunc(pipelines, byTime).Name
}

func byTime(a, b avgpipe.EqualMemory) int {
	switch {
	case a.Predicted.StepS < b.Predicted.StepS:
		return -1
	case a.Predicted.StepS > b.Predicted.StepS:
		return 1
	}
	return 0
}

// chosen adds a row for each baseline for which the text prints AvgPipe's degrees within the baseline's memory.
func (w compared) chosen(t *table.Table, c *comparison, others []switched) {
	for _, name := range slices.Sorted(maps.Keys(w.Degrees)) {
		at := func(rows []avgpipe.EqualMemory) string {
			if r := named(rows, name); r != nil && r.AvgPipe != nil {
				return r.AvgPipe.At.String()
			}
			return "nothing fits"
		}
		instead(t.Word(fmt.Sprintf("%s, AvgPipe's degrees at the memory of %s", w.Training.Name, name), w.Degrees[name],
			at(c.rows), ""), others, at)
	}
}

// instead adds an ablation to the row for each assumption under which the word differs from the row's.
func instead(row *table.Row, others []switched, word func([]avgpipe.EqualMemory) string) {
	for _, o := range others {
		if other := word(o.rows); other != row.Ours {
			row.Ablations = append(row.Ablations, table.Ablation{Assumption: o.what, Ours: other})
		}
	}
}
