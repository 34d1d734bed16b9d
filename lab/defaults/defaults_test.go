package defaults

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model"
)

// The committed results are those of the listed trainings with the current defaults. They stay below the losses that
// the list promises, and docs/models.md shows them.
func TestTheResultsAreOfTheDefaults(t *testing.T) {
	all, err := Read("../results/defaults.json")
	if err != nil {
		t.Fatal(err)
	}
	trained := map[string]bool{}
	for _, p := range slices.Concat(Small, Large) {
		trained[p.Model] = true
		at := slices.IndexFunc(all.Results, func(r Result) bool { return r.Name == p.Name })
		if at < 0 {
			t.Errorf("there is no result of %s; run: millrace-lab defaults --only %s", p.Name, p.Name)
			continue
		}
		r := all.Results[at]
		if r.Training != model.TrainingOf(p.Model) || r.Steps != p.Steps || !slices.Equal(r.Settings, p.Settings) ||
			r.Below != p.Below || r.Wrong() != "" {
			t.Errorf("%s: %s; measured %+v", p.Name, r.Wrong(), r)
		}
	}
	if len(all.Results) != len(Small)+len(Large) {
		t.Errorf("the file has %d results; the list has %d", len(all.Results), len(Small)+len(Large))
	}
	for _, f := range model.Families() {
		if f.Training.Optimizer != "" && !trained[f.Name] {
			t.Errorf("%s has defaults that nobody has trained with", f.Name)
		}
	}
	var table strings.Builder
	if err := all.Table().Markdown(&table); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile("../../docs/models.md"); err != nil || !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/models.md does not have what millrace-lab defaults prints: %v\n%s", err, table.String())
	}
}

func TestWrong(t *testing.T) {
	r := Result{Pair: Pair{Steps: 50, Below: 1}, First: 2, Highest: 2.4, At: 3, Reached: 0.9}
	if text := r.Wrong(); text != "" {
		t.Error(text)
	}
	for want, change := range map[string]func(*Result){
		"the loss rises from 2 to 2.5 at step 3":        func(r *Result) { r.Highest = 2.5 },
		"the loss is 1 after 50 steps; 1 is promised":   func(r *Result) { r.Reached = 1 },
		"the loss is NaN after 50 steps; 1 is promised": func(r *Result) { r.Reached = nan() },
	} {
		other := r
		change(&other)
		if text := other.Wrong(); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

func nan() float64 { zero := 0.0; return zero / zero }
