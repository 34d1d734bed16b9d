package dapple

import (
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
	"github.com/millrace-ml/millrace/plan"
)

// With analytic costs, which were fitted to no plan, the published search gives 15 of Table 4's
// 18 plans.
func TestTable4OnAnalyticCosts(t *testing.T) {
	found := tabletest.Of(t, "dapple-table4", table.Options{Formula: "artifact"})
	same, plans := 0, 0
	for _, r := range found.Rows {
		if !strings.HasSuffix(r.What, ", artifact") {
			continue
		}
		if plans++; r.Difference == "same" {
			same++
		}
	}
	if same < 15 || plans != 18 {
		t.Errorf("%d of %d plans come out, want 15 of 18", same, len(found.Rows))
	}
}

// One V100 of 16 GiB by hand: BERT with Adam takes 16 bytes a parameter, so that no
// more than 17.2e9 / (16 x 12.6e6) = 85 layers fit, and DAPPLE's 48 must.
func TestBERTFitsWhereItMust(t *testing.T) {
	for layers, want := range map[int]bool{48: true, 85: false} {
		b, err := bench.New(table.Options{}, "bert-48", map[string]any{"layers": layers}, "dapple-a:1x8")
		if err != nil {
			t.Fatal(err)
		}
		b.A.Optimizer, b.A.States = "adam", 2
		if got, err := b.Fits("1f1b", 1, 2, 2, true); err != nil || got != want {
			t.Errorf("%d layers fit: %v, %v, want %v", layers, got, err, want)
		}
	}
}

// By the paper's equations Table 6 has a plan in every row on published profiles too. A chain has a state behind each
// layer, so that the planner's layers are the table's states.
func TestTable6ByThePapersEquations(t *testing.T) {
	o := table.Options{Profiles: t.TempDir(), Formula: "paper"}
	for _, name := range []string{
		"dapple-vgg-19-pbs-32",
		"dapple-amoeba-36-pbs-1",
		"hpgo-bert_large",
		"dapple-xlnet-36-pbs-1",
	} {
		tabletest.Chain(t, o.Profiles, name+".txt", 1)
	}
	found := tabletest.Of(t, "dapple-table6", o)
	if len(found.Rows) != 8 {
		t.Errorf("%d rows; the table has 8", len(found.Rows))
	}
	for _, r := range found.Rows {
		if r.Ours == "none" {
			t.Errorf("%s has no plan: %s", r.What, r.Why)
		}
	}
	b, err := bench.New(o, "bert-large", nil, "dapple-a")
	if err != nil {
		t.Fatal(err)
	}
	planner, err := plan.LookupPlanner("dapple")
	if err != nil {
		t.Fatal(err)
	}
	pl, err := planner.Plan(t.Context(), plan.Request{Profile: b.Given, Cluster: b.C, Batch: 128})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, s := range pl.Stages {
		end := strconv.Itoa(s.LastLayer)
		if i == len(pl.Stages)-1 {
			end = "end"
		}
		want = append(want, ".."+end+"@"+strconv.Itoa(len(s.Devices)))
	}
	r := tabletest.Find(t, found, "bert-large (128) by dapple, states")
	if r.Ours != strings.Join(want, " ") || len(want) < 2 {
		t.Errorf("BERT: %s; the planner says %s", r.Ours, strings.Join(want, " "))
	}
}

// On the published profiles the published planner gives all its plans of Table 6, and all shapes of Table 4.
func TestPublishedProfiles(t *testing.T) {
	o := table.Options{Profiles: shared.Dir(t) + "/data/profiles"}
	for _, name := range []string{"dapple-table6", "dapple-table4"} {
		for _, r := range tabletest.Of(t, name, o).Rows {
			if r.Difference != "same" && !strings.Contains(r.What, "by pipedream") {
				t.Errorf("%s: %s: paper %s, ours %s", name, r.What, r.Paper, r.Ours)
			}
		}
	}
}
