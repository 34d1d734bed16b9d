package pipedream

import (
	"slices"
	"strings"
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
	for model, want := range map[string]string{"vgg16": "less", "resnet50": "more", "gnmt-8": "less", "gnmt-16": "less",
		"awd-lm": "less"} {
		if r := tabletest.Find(t, bytes, model+", pipeline against data parallelism"); !strings.HasSuffix(r.Ours, want) {
			t.Errorf("%s: %s; the paper has %s", model, r.Ours, r.Paper)
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
	for model, want := range map[string]string{"gnmt-8": "87 % less", "gnmt-16": "96 % less"} {
		if r := tabletest.Find(t, found, model+", pipeline against data parallelism"); r.Ours != want {
			t.Errorf("%s: %s, want %s", model, r.Ours, want)
		}
	}
}
