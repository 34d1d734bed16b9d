package reproduce

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// An option that an experiment does not use is refused, and one that it uses arrives: a folder without
// profiles, a formula or a setting that nobody has, and a setting's wrong value end every experiment.
func TestOptionsAreUsedOrRefused(t *testing.T) {
	empty := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	stop() // what is refused is refused before anything is computed
	for _, e := range Experiments() {
		for what, o := range map[string]Options{
			"a folder that is not there": {Profiles: filepath.Join(empty, "none")},
			"another formula":            {Formula: "nonsense"},
			"a setting of nobody's":      {Set: map[string]string{"nonsense": "1"}},
		} {
			if _, err := e.Run(ctx, o); err == nil || !strings.Contains(err.Error(), "--") {
				t.Errorf("%s takes %s: %v", e.Name, what, err)
			}
		}
		if _, err := e.Run(t.Context(), Options{Profiles: empty}); err == nil {
			t.Errorf("%s does without the profiles that it was to read", e.Name)
		}
		settings := slices.Clone(scriptSettings)
		for _, planner := range plan.Planners() {
			settings = append(settings, planner.Settings...)
		}
		for _, s := range settings {
			bad := Options{Set: map[string]string{s.Name: "-1x"}}
			if _, err := e.Run(t.Context(), bad); err == nil || !strings.Contains(err.Error(), s.Name) {
				t.Errorf("%s takes %s=-1x: %v", e.Name, s.Name, err)
			}
		}
		bad := Options{Formula: "paper", Set: map[string]string{"nvlink": "1e9"}}
		if _, err := e.Run(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%s takes what the published script is told, by formula paper: %v", e.Name, err)
		}
	}
}

// graph writes a published profile of a chain, such as the papers' authors have them: an input, twenty layers whose
// work falls as their weights grow, and times and bytes as many times as long.
func graph(t *testing.T, folder, name string, times float64) {
	t.Helper()
	var b strings.Builder
	const layers = 20
	for i := range layers + 1 {
		work, weights := 40-1.5*float64(i), math.Pow(1.6, float64(i))*1e5
		if i == 0 {
			work, weights = 0, 0
		}
		fmt.Fprintf(&b, "node%d -- Layer -- forward_compute_time=%g, backward_compute_time=%g, ",
			i+1, times*work, times*2*work)
		fmt.Fprintf(&b, "activation_size=%.1f, parameter_size=%.1f\n", times*4e7/float64(i+1), times*weights)
	}
	for i := range layers {
		fmt.Fprintf(&b, "\tnode%d -- node%d\n", i+1, i+2)
	}
	if err := os.WriteFile(filepath.Join(folder, name), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tableOf(t *testing.T, name string, o Options) *Table {
	t.Helper()
	e, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	table, err := e.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// By the paper's equations Table 6 has a plan in every row on published profiles too. A chain has a state behind each
// layer, so that the planner's layers are the table's states.
func TestTable6ByThePapersEquations(t *testing.T) {
	o := Options{Profiles: t.TempDir(), Formula: "paper"}
	for _, name := range []string{
		"dapple-vgg-19-pbs-32",
		"dapple-amoeba-36-pbs-1",
		"hpgo-bert_large",
		"dapple-xlnet-36-pbs-1",
	} {
		graph(t, o.Profiles, name+".txt", 1)
	}
	table := tableOf(t, "dapple-table6", o)
	if len(table.Rows) != 8 {
		t.Errorf("%d rows; the table has 8", len(table.Rows))
	}
	for _, r := range table.Rows {
		if r.Ours == "none" {
			t.Errorf("%s has no plan: %s", r.What, r.Why)
		}
	}
	b, err := newBench(o, "bert-large", nil, "dapple-a")
	if err != nil {
		t.Fatal(err)
	}
	planner, err := plan.LookupPlanner("dapple")
	if err != nil {
		t.Fatal(err)
	}
	pl, err := planner.Plan(t.Context(), plan.Request{Profile: b.given, Cluster: b.c, Batch: 128})
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
	if r := find(t, table, "bert-large (128) by dapple, states"); r.Ours != strings.Join(want, " ") || len(want) < 2 {
		t.Errorf("BERT: %s; the planner says %s", r.Ours, strings.Join(want, " "))
	}
}

// Where everything takes a hundred thousand times as long, all rates are below one sample a second, and
// configurations stand in the same order.
func TestSlowConfigurationsAreToldApart(t *testing.T) {
	order := func(times float64) (names []string) {
		folder := t.TempDir()
		graph(t, folder, "pipedream-vgg16.txt", times)
		for _, r := range tableOf(t, "pipedream-fig15", Options{Profiles: folder}).Rows {
			names = append(names, r.What)
		}
		return names
	}
	if got, want := order(1e5), order(1); !slices.Equal(got, want) {
		t.Errorf("slow configurations stand in the order %q; fast ones %q", got, want)
	}
}
