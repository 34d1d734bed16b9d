package runs

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Every registered family and policy is trained by some run of the list.
func TestTheListCoversEveryFamilyAndPolicy(t *testing.T) {
	pairs := map[[2]string]bool{}
	for _, r := range list {
		for _, l := range r.legs() {
			pairs[[2]string{l.Schedule, l.Weights}] = true
		}
	}
	for _, f := range family.All() {
		policies := f.Policies
		if policies == nil {
			policies = []schedule.Policy{schedule.Sync}
		}
		for _, w := range policies {
			name := string(w)
			if w == schedule.Sync {
				name = ""
			}
			if !pairs[[2]string{f.Name, name}] {
				t.Errorf("no run trains by schedule %s under %s", f.Name, w)
			}
		}
	}
	for _, w := range schedule.Policies() {
		if w != schedule.Sync && !slices.ContainsFunc(list, func(r run) bool { return r.Weights == string(w) }) {
			t.Errorf("no run trains under %s", w)
		}
	}
}

// Besides orders and policies, other features change bits. The list has a run with each of these features.
func TestTheListCoversWhatChangesTensors(t *testing.T) {
	has := func(what string, some func(run, leg) bool) {
		t.Helper()
		for _, r := range list {
			if slices.ContainsFunc(r.legs(), func(l leg) bool { return some(r, l) }) {
				return
			}
		}
		t.Errorf("no run has %s", what)
	}
	flag := func(f string) func(run, leg) bool {
		return func(_ run, l leg) bool { return slices.Contains(l.Flags, f) }
	}
	for _, f := range []string{"--clip", "--post-validate", "--resume-averaged", "--advance", "--save-every",
		"--eval-every", "--lr-schedule", "--batch-norm"} {
		has(f, flag(f))
	}
	for _, text := range []string{"stage", "every 2"} {
		has("recompute "+text, func(_ run, l leg) bool { return l.Recompute == text })
	}
	for _, n := range []int{2, 3} {
		has("pipelines", func(_ run, l leg) bool { return l.Pipelines == n })
	}
	for _, rows := range []bool{true, false} {
		for _, equal := range []bool{true, false} {
			has("replicas", func(_ run, l leg) bool {
				sizes := map[int]bool{}
				for _, on := range l.places() {
					sizes[len(on)] = true
				}
				return l.Rows == rows && len(l.places()) > 1 && !sizes[0] && (len(sizes) == 1) == equal && !(equal && sizes[1])
			})
		}
	}
	has("another plan to go on under", func(r run, l leg) bool { return r.Then != nil && r.Schedule != r.Then.Schedule })
	has("a Program from a file", func(_ run, l leg) bool { return l.Program != nil })
	for name, s := range subjects {
		has("model "+name, func(r run, _ leg) bool { return r.Subject == name })
		has("model "+name+" without a flush", func(r run, l leg) bool { return r.Subject == name && l.Schedule == "1f1b-rr" })
		if at := slices.Index(s.Optimizer, "--optimizer"); at < 0 {
			t.Errorf("model %s has no optimizer", name)
		} else if _, err := optim.Default(s.Optimizer[at+1]); err != nil {
			t.Error(err)
		}
	}
}

// millrace can read and schedule all plans of the list. A run that is named in Like comes before the runs that name it.
func TestTheListIsSound(t *testing.T) {
	if len(list) < 40 {
		t.Errorf("%d runs; the list has 40 at least", len(list))
	}
	seen := map[string]run{}
	for _, r := range list {
		if _, twice := seen[r.Name]; twice {
			t.Errorf("%s is there twice", r.Name)
		}
		if like, ok := seen[r.Like]; r.Like != "" && (!ok || like.Subject != r.Subject) {
			t.Errorf("%s is held to %q, which is no run of its model before it", r.Name, r.Like)
		}
		seen[r.Name] = r
		s, known := subjects[r.Subject]
		if !known {
			t.Errorf("%s: there is no model %q", r.Name, r.Subject)
		}
		for _, l := range r.legs() {
			if l.Schedule == "" {
				continue
			}
			text, err := l.plan(s, r.Subject, "id")
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
				continue
			}
			p := &plan.Plan{}
			if err := json.Unmarshal(text, p); err != nil {
				t.Errorf("%s: %v", r.Name, err)
				continue
			}
			if err := p.Validate(); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
			name, settings := schedule.FromPlan(p)
			if p.Weights != "sync" && p.Weights != "elastic" {
				settings.Repeat = l.Steps
			}
			if _, err := family.Generate(name, settings); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
	}
}

// The exceptions of a commit name runs of the list, each once and with a reason.
func TestExpectationsAreAboutTheList(t *testing.T) {
	for commit, exceptions := range expected {
		if len(commit) != 40 {
			t.Errorf("%q is no whole commit", commit)
		}
		seen := map[string]bool{}
		for _, e := range exceptions {
			if seen[e.Run] || e.Why == "" || !slices.ContainsFunc(list, func(r run) bool { return r.Name == e.Run }) {
				t.Errorf("%s: %q is there twice, has no reason, or is no run", commit, e.Run)
			}
			seen[e.Run] = true
		}
	}
}
