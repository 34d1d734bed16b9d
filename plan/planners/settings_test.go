package planners

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestSettingsAreReadByTheirTables: for every planner and formula, setting a value to its default changes nothing. The
// value -1x is refused, with an error that names the setting and the value. Every setting belongs to some formula.
// Unknown settings and formulas are refused.
func TestSettingsAreReadByTheirTables(t *testing.T) {
	p := &profile.Profile{Version: 1, Model: "m", Layers: []profile.Layer{
		{Name: "a", From: []int{-1}, TiedTo: -1, ParameterBytes: 10}, {Name: "b", From: []int{0}, TiedTo: -1,
			ParameterBytes: 10}}}
	for i := range p.Layers {
		p.Layers[i].Costs = []profile.Cost{{Device: "cpu", MicroBatch: 2, ForwardS: 1, BackwardS: 2, OutputBytes: 4,
			SavedBytes: 4}}
	}
	c := cluster.Local("cpu", 2, 0, 0, 0, 10, 10)
	for _, planner := range plan.Planners() {
		formulas, others := []string{"paper"}, map[string]int{}
		if planner.Artifact != "" {
			formulas = append(formulas, "artifact")
		}
		for _, formula := range formulas {
			ask := func(set map[string]string) (*plan.Plan, error) {
				return planner.Plan(context.Background(),
					plan.Request{Profile: p, Cluster: c, Batch: 8, Formula: formula, Set: set})
			}
			plain, err := ask(nil)
			if err != nil {
				t.Fatalf("%s %s: %v", planner.Name, formula, err)
			}
			for _, s := range planner.Settings {
				same, err := ask(map[string]string{s.Name: s.Default})
				if err != nil && strings.Contains(err.Error(), s.Name) &&
					strings.Contains(err.Error(), "a setting of formula") {
					others[s.Name]++
				} else if err != nil || same.Objective != plain.Objective {
					t.Errorf("%s %s: %s=%s is the default and gives %v, %v; without it %v", planner.Name, formula,
						s.Name, s.Default, same, err, plain.Objective)
				}
				_, err = ask(map[string]string{s.Name: "-1x"})
				if err == nil || !strings.Contains(err.Error(), s.Name) || !strings.Contains(err.Error(), `"-1x"`) {
					t.Errorf("%s %s: %s=-1x: %v", planner.Name, formula, s.Name, err)
				}
			}
		}
		for name, formulasWithout := range others {
			if formulasWithout == len(formulas) {
				t.Errorf("%s: no formula reads %s", planner.Name, name)
			}
		}
		var refused *plan.SettingError
		if _, err := planner.Plan(context.Background(),
			plan.Request{Profile: p, Cluster: c, Batch: 8, Formula: "printed"}); !errors.As(err, &refused) {
			t.Errorf("%s took formula printed", planner.Name)
		}
		if _, err := planner.Plan(context.Background(),
			plan.Request{Profile: p, Cluster: c, Batch: 8, Set: map[string]string{"colour": "blue"}}); err == nil ||
			!strings.Contains(err.Error(), "colour") {
			t.Errorf("%s took a setting that it does not have: %v", planner.Name, err)
		}
	}
}

// TestAvgPipeCitesWhereItsPartitionerIs: AvgPipe's paper describes its partitioner in section 6.
func TestAvgPipeCitesWhereItsPartitionerIs(t *testing.T) {
	p, err := plan.LookupPlanner("avgpipe")
	if err != nil || !strings.HasSuffix(p.Paper, "section 6") {
		t.Errorf("%q, %v", p.Paper, err)
	}
}
