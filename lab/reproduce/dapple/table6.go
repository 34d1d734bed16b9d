package dapple

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
	"github.com/millrace-ml/millrace/profile"
)

func init() {
	table.Register("dapple-table6", "DAPPLE Table 6: its plans and PipeDream's on 2x8",
		table.Uses{Profiles: true, Planners: []string{"dapple", "pipedream"}, Fixed: []string{"dp"},
			Script: scriptSettings}, dappleTable6)
}

// dappleTable6 compares the plans of Table 6 with ours. If there is a published profile, DAPPLE's rows get the
// published search's best plan of several stages. With formula "paper" they get the plan by the paper's equations.
func dappleTable6(ctx context.Context, o table.Options, t *table.Table) error {
	var paper dappleTable
	if err := table.Read(files, "table6", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	for _, r := range paper.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(o, r.Workload, nil, "dapple-a")
		if err != nil {
			return err
		}
		p, err := b.Profile(bench.SizesFor(r.Batch, r.MicroBatch)...)
		if err != nil {
			return err
		}
		row := table6Row{dappleRow: r, what: fmt.Sprintf("%s (%d) by %s", r.Workload, r.Batch, r.Planner)}
		switch {
		case b.Given == nil || r.Planner != "dapple":
			err = row.inLayers(ctx, o, b, p, t)
		case o.Formula == "paper":
			err = row.inStates(ctx, o, b, t)
		default:
			err = row.bySearch(ctx, o, b, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// table6Row is a row of the paper's table, with the name of this row in our table.
type table6Row struct {
	dappleRow
	what string
}

// ended describes a plan of several stages as in the table: the last layer and the number of replicas of each stage.
func ended(ends []string, replicas []int) string {
	var words []string
	for i, n := range replicas {
		words = append(words, fmt.Sprintf("..%s@%d", append(slices.Clone(ends), "end")[i], n))
	}
	return strings.Join(words, " ")
}

// replicasOf returns the number of devices of each stage.
func replicasOf(pl *plan.Plan) (replicas []int) {
	for _, s := range pl.Stages {
		replicas = append(replicas, len(s.Devices))
	}
	return replicas
}

// rules lists changes to PipeDream's planner. Each is tried in every row of that planner.
var rules = []struct {
	what, formula string
	set           map[string]string
}{
	{"PipeDream's published code", "artifact", nil},
	{"PipeDream's published code, all devices one flat level", "artifact", map[string]string{"hierarchy": "flat"}},
	{"PipeDream's published code, computing and messages overlap (max)", "artifact", map[string]string{"overlap": "max"}},
}

// inLayers adds the plan of the row's planner. Its cuts are given as names of layers.
func (r table6Row) inLayers(
	ctx context.Context, o table.Options, b *bench.Bench, p *profile.Profile, t *table.Table,
) error {
	said := "straight"
	if !r.Straight {
		said = ended(r.Cuts, r.Replicas)
	}
	if r.Planner == "dapple" {
		asked := o
		if asked.Formula == "" {
			asked.Formula = "artifact"
		}
		pl, err := dapple(ctx, asked, b, p, r.Batch, r.Artifact, map[string]string{"dp": "no"})
		if err != nil {
			return r.none(t, said, err)
		}
		t.Word(r.what, said, named(p, pl), "")
		return nil
	}
	planner, err := plan.LookupPlanner(r.Planner)
	if err != nil {
		return err
	}
	chosen := func(formula string, set map[string]string) (string, error) {
		request := o.Request(r.Planner, p, b.C, r.MicroBatch) // this planner plans for a sequence of minibatches
		request.MicroBatch = r.MicroBatch
		if formula != "" {
			request.Formula = formula
		}
		for name, value := range set {
			if _, told := request.Set[name]; !told {
				request.Set[name] = value
			}
		}
		pl, err := planner.Plan(ctx, request)
		if err != nil {
			return "", err
		}
		return named(p, pl), nil
	}
	ours, err := chosen("", nil)
	if err != nil {
		return r.none(t, said, err)
	}
	row := t.Word(r.what, said, ours, "")
	for _, other := range rules {
		if ours, err = chosen(other.formula, other.set); err != nil {
			return err
		}
		row.AblateWord(other.what, ours)
	}
	return nil
}

// named describes a plan as in the table: stages by their last layers.
func named(p *profile.Profile, pl *plan.Plan) string {
	if name := bench.Configuration(pl); name == "straight" {
		return name
	}
	var ends []string
	for _, s := range pl.Stages[:len(pl.Stages)-1] {
		ends = append(ends, p.Layers[prefix(pl, s)[s.LastLayer]].Name)
	}
	return ended(ends, replicasOf(pl))
}

// none adds a row that says that there is no plan, with the reason `err`. If err says that a setting was refused, none
// only returns it.
func (r table6Row) none(t *table.Table, said string, err error) error {
	if err := table.OfSettings(err); err != nil {
		return err
	}
	t.Word(r.what, said, "none", err.Error())
	return nil
}

// prefix returns the layers from the model's first layer to the last layer of the stage s, in the plan's order.
func prefix(pl *plan.Plan, s plan.Stage) []int {
	layers := make([]int, s.LastLayer+1)
	for i := range layers {
		if layers[i] = i; pl.Order != nil {
			layers[i] = pl.Order[i]
		}
	}
	return layers
}

// states describes the row's plan by states of the published profile.
func (r table6Row) states() string {
	var ends []string
	for _, s := range r.States {
		ends = append(ends, fmt.Sprint(s))
	}
	return ended(ends, r.Replicas)
}

// bySearch adds the best plan with several stages that the published search finds. Its cuts are given as states of the
// published profile.
func (r table6Row) bySearch(ctx context.Context, o table.Options, b *bench.Bench, t *table.Table) error {
	k, _, err := constants(o, o.Request("dapple", b.Given, b.C, r.Batch), r.Artifact)
	if err != nil {
		return err
	}
	a, err := artifact.Search(ctx, b.Given, b.C, r.Batch, k)
	if err != nil {
		return err
	}
	if a.BestMulti < 0 {
		t.Word(r.what+", states", r.states(), "one stage", "no plan of several stages is estimated to be faster")
		return nil
	}
	var ends []string
	var replicas []int
	for _, s := range a.Candidates[a.BestMulti].Stages {
		ends, replicas = append(ends, fmt.Sprint(s.End-1)), append(replicas, len(s.Devices))
	}
	t.Word(r.what+", states", r.states(), ended(ends[:len(ends)-1], replicas),
		"the authors' settings for this model are not published with the table")
	return nil
}

// inStates adds the plan by the paper's equations. Its cuts are given as states of the published profile.
func (r table6Row) inStates(ctx context.Context, o table.Options, b *bench.Bench, t *table.Table) error {
	r.what += ", states"
	pl, err := dapple(ctx, o, b, b.Given, r.Batch)
	if err != nil {
		return r.none(t, r.states(), err)
	}
	_, costs, err := b.Costs(pl.MicroBatch)
	if err != nil {
		return err
	}
	all, err := profile.StatesOf(b.Given, costs)
	if err != nil {
		return err
	}
	var ends []string
	for _, s := range pl.Stages[:len(pl.Stages)-1] {
		before := slices.Sorted(slices.Values(prefix(pl, s)))
		state := 0
		for state < len(all.List) && !slices.Equal(before, all.Layers(state)) {
			state++
		}
		if state == len(all.List) {
			return fmt.Errorf("%s: the stage that ends with layer %d ends at no state of the profile", r.what,
				s.LastLayer)
		}
		ends = append(ends, fmt.Sprint(state))
	}
	t.Word(r.what, r.states(), ended(ends, replicasOf(pl)), "equations (1) to (5) searched in full")
	return nil
}
