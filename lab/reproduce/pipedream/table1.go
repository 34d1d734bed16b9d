package pipedream

import (
	"context"
	"fmt"
	"maps"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	table.Register("pipedream-table1",
		"PipeDream Table 1: the paper's configurations, epoch time against data parallelism",
		table.Uses{Profiles: true}, pipedreamTable1)
	table.Register("pipedream-table1-plans", "PipeDream Table 1: the configurations that its optimizer chooses",
		table.Uses{Profiles: true, Planners: []string{"pipedream"}}, pipedreamTable1Plans)
}

type pipedreamRow struct {
	Workload string  `yaml:"workload"`
	Batch    int     `yaml:"batch"`
	Cluster  string  `yaml:"cluster"`
	Config   string  `yaml:"config"`
	Replicas []int   `yaml:"replicas"`
	Speedup  float64 `yaml:"speedup"`
}

// eachRow calls `yield` with each row of Table 1, and with a bench of the row's workload on the row's cluster.
func eachRow(ctx context.Context, o table.Options, t *table.Table, yield func(pipedreamRow, *bench.Bench) error) error {
	rows, err := table.Rows[pipedreamRow](files, "table1", t)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(o, r.Workload, nil, r.Cluster)
		if err != nil {
			return err
		}
		if err := yield(r, b); err != nil {
			return err
		}
	}
	return nil
}

// assumed holds assumptions that Table 1's speed-ups depend on, but that the paper does not state.
type assumed struct {
	collectives float64 // part of the wires' rate that all-reduces reach; 0 means all of it
	messages    float64 // part of the wires' rate that messages between servers reach; 0 means all of it
	bySize      kernels
	together    bool // all GPUs share a printed batch of 80; otherwise each GPU has such a batch
}

// kernels selects the layers whose times follow the kernel costs of cluster/types.yaml: they include launches, and
// small matrices are slower. The zero value selects no layer.
type kernels int

const (
	butConvolutionsBySize kernels = iota + 1
	allBySize
)

// on returns b with the kernels that k selects.
func (k kernels) on(b *bench.Bench) (*bench.Bench, error) {
	switch k {
	case allBySize:
		return b.BySize()
	case butConvolutionsBySize:
		return b.BySizeFor(func(kind string) bool { return !bench.Convolution(kind) })
	}
	return b, nil
}

// otherwise lists the assumptions that are switched in every row.
var otherwise = []table.Switch[assumed]{
	{What: "all-reduces at 0.25 of the wires' rate", To: func(a *assumed) { a.collectives = .25 }},
	{What: "all-reduces at 0.5 of the wires' rate", To: func(a *assumed) { a.collectives = .5 }},
	{What: "messages between servers at 0.25 of the wires' rate", To: func(a *assumed) { a.messages = .25 }},
	{What: "messages between servers at 0.5 of the wires' rate", To: func(a *assumed) { a.messages = .5 }},
	{What: "small matrices slower, as cluster/types.yaml has them", To: func(a *assumed) { a.bySize = allBySize }},
	{What: "small matrices slower, but not convolutions", To: func(a *assumed) { a.bySize = butConvolutionsBySize }},
	{What: "a batch of 80 for all GPUs together", To: func(a *assumed) { a.together = true }},
}

func pipedreamTable1(ctx context.Context, o table.Options, t *table.Table) error {
	t.Notes = append(t.Notes,
		"speedup: wait-free data parallelism's step over the slowest stage of the paper's configuration, cut where that is "+
			"least (section 3.1, max of compute and communication)",
		"section 5.1 gives batches by GPU, and for the language model \"batch size of 80\", for S2VT 80; that these two are "+
			"of all GPUs together is what Figure 17's bytes want (see pipedream-fig17)")
	all := table.Combine(assumed{}, otherwise, len(otherwise))
	table.Tries(t, all)
	return eachRow(ctx, o, t, func(r pipedreamRow, b *bench.Bench) error {
		ours, err := overDataParallelism(b, r, assumed{})
		if err != nil {
			return err
		}
		row := t.Number(fmt.Sprintf("%s %s %s", r.Workload, r.Cluster, r.Config), r.Speedup, ours, "%.2f", "")
		row.Ratio().In(r.Cluster)
		for _, a := range all {
			v, err := overDataParallelism(b, r, a.Assumed)
			if err != nil {
				return err
			}
			row.Ablate(a.What, v, "%.2f")
		}
		return fitted(row, func(part float64) (float64, error) {
			return overDataParallelism(b, r, assumed{collectives: part})
		})
	})
}

// overDataParallelism returns the speed-up of a row: data parallelism's time for a sample, divided by the time of the
// slowest stage in the row's configuration.
func overDataParallelism(b *bench.Bench, r pipedreamRow, a assumed) (float64, error) {
	b, err := a.bySize.on(b)
	if err != nil {
		return 0, err
	}
	planned := b // the optimizer plans with messages at the wires' whole rate
	b = b.Reaching(a.collectives)
	if a.messages > 0 && len(b.C.Levels) > 1 {
		b = b.MessagesAt(a.messages)
	}
	n := len(b.C.Devices)
	each := r.Batch // samples of each GPU in data parallelism
	if a.together && r.Batch == 80 {
		each /= n
	}
	step, _, err := b.WaitFree(n, each)
	if err != nil {
		return 0, err
	}
	replicas := r.Replicas
	if r.Config == "straight" {
		replicas = bench.Ones(min(n, len(b.M.Layers)-1)) // the loss is not a stage
	}
	if len(replicas) == 1 {
		return 1, nil
	}
	s, err := planned.BestSplit(replicas, r.Batch)
	if err != nil {
		return 0, err
	}
	slowest, err := b.Slowest(s.Last, replicas, r.Batch)
	return step / float64(n*each) / (slowest / float64(r.Batch)), err
}

// published lists rules under which the published optimizer can run. Each rule is tried in every row, because the paper
// does not say which rules gave which row.
var published = []struct {
	what string
	set  map[string]string
}{
	{"all devices are one flat level", map[string]string{"hierarchy": "flat"}},
	{"computing and messages overlap (max)", map[string]string{"overlap": "max"}},
	{"all devices are one flat level, computing and messages overlap (max)",
		map[string]string{"hierarchy": "flat", "overlap": "max"}},
}

// pipedreamTable1Plans adds Table 1's configurations as the published code plans them. It runs the code first
// unchanged, and then with each of the rules in `published`. It also adds the configurations by the paper's formula.
// But if the user chooses the formula "paper", it adds only these.
func pipedreamTable1Plans(ctx context.Context, o table.Options, t *table.Table) error {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		return err
	}
	t.Notes = append(t.Notes, "the published code's optimizer as it is, the same for every row: levels of the topology, "+
		"computing and messages added up (sum)")
	return eachRow(ctx, o, t, func(r pipedreamRow, b *bench.Bench) error {
		chosen := func(formula string, set map[string]string) (string, error) {
			return planned(ctx, o, planner, b, r.Batch, formula, set)
		}
		formula := o.Formula
		if formula == "" {
			formula = "artifact"
		}
		ours, err := chosen(formula, nil)
		if err != nil {
			return err
		}
		row := t.Word(fmt.Sprintf("%s %s", r.Workload, r.Cluster), r.Config, ours, "")
		if formula == "paper" {
			return nil
		}
		for _, rules := range published {
			other, err := chosen(formula, rules.set)
			if err != nil {
				return err
			}
			row.AblateWord(rules.what, other)
		}
		other, err := chosen("paper", nil)
		if err == nil {
			row.AblateWord("by the paper's formula", other)
		}
		return err
	})
}

// planned returns a planner's plan in the papers' notation, or "none" if the planner finds no plan. A refused setting
// is an error.
func planned(ctx context.Context, o table.Options, planner plan.Planner, b *bench.Bench, batch int, formula string,
	set map[string]string) (string, error) {
	p, err := b.Profile(bench.SizesFor(batch, 0)...)
	if err != nil {
		return "", err
	}
	request := o.Request(planner.Name, p, b.C, batch)
	told := maps.Clone(set)
	if told == nil {
		told = map[string]string{}
	}
	maps.Copy(told, request.Set) // the user's settings override the experiment's
	request.Formula, request.Set, request.MicroBatch = formula, told, batch
	pl, err := planner.Plan(ctx, request)
	if err != nil {
		return "none", table.OfSettings(err)
	}
	return bench.Configuration(pl), nil
}
