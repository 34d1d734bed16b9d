package reproduce

import (
	"context"
	"testing"
)

func TestEveryExperimentRuns(t *testing.T) {
	for _, e := range Experiments() {
		table, err := e.Run(context.Background(), Options{})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		t.Logf("%s: %s", e.Name, table.Title)
		for _, r := range table.Rows {
			t.Logf("   %-50s %-10s %-10s %-10s %s", r.What, r.Paper, r.Ours, r.Difference, r.Why)
		}
		if len(table.Rows) == 0 || table.Source == "" {
			t.Errorf("%s has no rows or no source", e.Name)
		}
	}
}
