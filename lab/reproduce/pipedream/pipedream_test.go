package pipedream

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
)

// What the papers say in words, and no constant was set for.
func TestStatementsOfThePapers(t *testing.T) {
	if r := tabletest.Find(t, tabletest.Run(t, "pipedream-fig15"), "best configuration"); r.Ours != "15-1" {
		t.Errorf("VGG-16 on 16 workers: %s; PipeDream's optimizer says 15-1", r.Ours)
	}
	bytes := tabletest.Run(t, "pipedream-fig17")
	if a := bytes.Agreement(); a.Bounds != (table.Count{Same: 4, Of: 4}) || a.Signs != (table.Count{Same: 2, Of: 2}) {
		t.Errorf("Figure 17: %v", a)
	}
	// Where the batch of 80 is that of four GPUs together: the paper has 88 and 85 % less than data parallelism.
	for model, most := range map[string]float64{"awd-lm": .12, "s2vt": .25} {
		r := tabletest.Find(t, bytes, model+", pipeline over data parallelism")
		if got := r.Ablations[0].Value; got > most {
			t.Errorf("%s: %.2f of data parallelism's bytes; at most %.2f", model, got, most)
		}
	}
}

// Where everything takes a hundred thousand times as long, all rates are below one sample a second, and
// configurations stand in the same order.
func TestSlowConfigurationsAreToldApart(t *testing.T) {
	order := func(times float64) (names []string) {
		folder := t.TempDir()
		tabletest.Chain(t, folder, "pipedream-vgg16.txt", times)
		for _, r := range tabletest.Of(t, "pipedream-fig15", table.Options{Profiles: folder}).Rows {
			names = append(names, r.What)
		}
		return names
	}
	if got, want := order(1e5), order(1); !slices.Equal(got, want) {
		t.Errorf("slow configurations stand in the order %q; fast ones %q", got, want)
	}
}

// On the published profiles 15-1 is best for VGG-16, and GNMT's pipelines send far less than data parallelism.
func TestPublishedProfiles(t *testing.T) {
	o := table.Options{Profiles: shared.Dir(t) + "/data/profiles"}
	found := tabletest.Of(t, "pipedream-fig15", o)
	if r := tabletest.Find(t, found, "best configuration"); r.Ours != "15-1" {
		t.Errorf("VGG-16 on 16 workers: %s", r.Ours)
	}
	found = tabletest.Of(t, "pipedream-fig17", o)
	for model, want := range map[string]string{"gnmt-8": "0.13", "gnmt-16": "0.04"} {
		if r := tabletest.Find(t, found, model+", pipeline over data parallelism"); r.Ours != want {
			t.Errorf("%s: %s, want %s", model, r.Ours, want)
		}
	}
}
