package reproduce

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
)

func run(t *testing.T, name string) *Table {
	t.Helper()
	table := tableOf(t, name, Options{})
	if len(table.Rows) == 0 || table.Source == "" {
		t.Errorf("%s has no rows or no source", name)
	}
	for _, r := range table.Rows {
		if r.What == "" || r.Paper == "" || r.Ours == "" || r.Difference == "" {
			t.Errorf("%s: a row is incomplete: %+v", name, r)
		}
		if r.Difference != "none" && r.Difference != "same" && r.Difference != "-" && r.Why == "" {
			t.Errorf("%s: %s differs by %s and does not say why", name, r.What, r.Difference)
		}
		t.Logf("%-60s %-10s %-10s %-10s %s", r.What, r.Paper, r.Ours, r.Difference, r.Why)
	}
	return table
}

// Closed forms are met to the last digit shown.
func TestBaPipesFormulasHold(t *testing.T) {
	for _, name := range []string{"bapipe-table1", "bapipe-table2"} {
		for _, r := range run(t, name).Rows {
			if r.Difference != "none" {
				t.Errorf("%s: %s: paper %s, ours %s", name, r.What, r.Paper, r.Ours)
			}
		}
	}
}

func TestTablesRun(t *testing.T) {
	for _, name := range []string{"bapipe-table3", "bapipe-table6", "dapple-fig12", "pipedream-fig1",
		"pipedream-fig16"} {
		run(t, name)
	}
}

func find(t *testing.T, table *Table, what string) Row {
	t.Helper()
	i := slices.IndexFunc(table.Rows, func(r Row) bool { return r.What == what })
	if i < 0 {
		t.Fatalf("%s has no row %q", table.Name, what)
	}
	return table.Rows[i]
}

// What the papers say in words, and no constant was set for.
func TestStatementsOfThePapers(t *testing.T) {
	if r := find(t, run(t, "pipedream-fig15"), "best configuration"); r.Ours != "15-1" {
		t.Errorf("VGG-16 on 16 workers: %s; PipeDream's optimizer says 15-1", r.Ours)
	}
	bytes := run(t, "pipedream-fig17")
	for model, want := range map[string]string{"vgg16": "less", "resnet50": "more", "gnmt-8": "less", "gnmt-16": "less",
		"awd-lm": "less"} {
		if r := find(t, bytes, model+", pipeline against data parallelism"); !strings.HasSuffix(r.Ours, want) {
			t.Errorf("%s: %s; the paper has %s", model, r.Ours, r.Paper)
		}
	}
}

// With analytic costs, which were fitted to no plan, the published search gives 15 of Table 4's
// 18 plans.
func TestTable4OnAnalyticCosts(t *testing.T) {
	table := tableOf(t, "dapple-table4", Options{Formula: "artifact"})
	same, plans := 0, 0
	for _, r := range table.Rows {
		if !strings.HasSuffix(r.What, ", artifact") {
			continue
		}
		if plans++; r.Difference == "same" {
			same++
		}
	}
	if same < 15 || plans != 18 {
		t.Errorf("%d of %d plans come out, want 15 of 18", same, len(table.Rows))
	}
}

func TestAnUnknownExperimentIsRefused(t *testing.T) {
	if _, err := Lookup("table9"); err == nil || !strings.Contains(err.Error(), "bapipe-table1") {
		t.Errorf("got %v", err)
	}
}

func TestLargest(t *testing.T) {
	for _, want := range []int{4, 6, 62, 64, 130} {
		got, err := largest(context.Background(), 2, func(layers int) (bool, error) { return layers <= want, nil })
		if err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
}

// One V100 of 16 GiB by hand: BERT with Adam takes 16 bytes a parameter, so that no
// more than 17.2e9 / (16 x 12.6e6) = 85 layers fit, and DAPPLE's 48 must.
func TestBERTFitsWhereItMust(t *testing.T) {
	for layers, want := range map[int]bool{48: true, 85: false} {
		b, err := newBench(Options{}, "bert-48", map[string]any{"layers": layers}, "dapple-a:1x8")
		if err != nil {
			t.Fatal(err)
		}
		b.a.Optimizer, b.a.States = "adam", 2
		if got, err := b.fits("1f1b", 1, 2, 2, true); err != nil || got != want {
			t.Errorf("%d layers fit: %v, %v, want %v", layers, got, err, want)
		}
	}
}

func TestStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e, err := Lookup("pipedream-fig1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run(ctx, Options{}); err == nil {
		t.Error("it ran to its end")
	}
}

// A planner is told those of the settings that it has.
func TestSettingsGoToThePlannerThatHasThem(t *testing.T) {
	o := Options{Formula: "paper", Set: map[string]string{"policy": "pa", "volume": "prose"}}
	for planner, want := range map[string]map[string]string{
		"dapple": {"policy": "pa"}, "pipedream": {"volume": "prose"}, "bapipe": {},
	} {
		if r := o.request(planner, nil, nil, 1); !maps.Equal(r.Set, want) || r.Formula != "paper" {
			t.Errorf("%s is told %v; want %v", planner, r.Set, want)
		}
	}
}
