package tune

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// planned returns a search request for a built-in model on a preset. Costs come from the peaks of the devices.
func planned(t *testing.T, name string, set map[string]any, on string, batch int) Request {
	t.Helper()
	m, err := model.Build(name, set)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Preset(on)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Analytic(m, c.DeviceTypes, []int{1, 2, 4, 8}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Profile: p, Cluster: c, Batch: batch}
}

// TestAFixedScheduleIsNoSlowerThanAsARival: a search with a fixed schedule finds a plan at least as fast as the rival
// of that schedule in a search that may choose.
func TestAFixedScheduleIsNoSlowerThanAsARival(t *testing.T) {
	t.Parallel()
	for _, r := range []Request{
		planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16),
		planned(t, "convnet", nil, "dapple-c:2", 16),
		planned(t, "lstm", nil, "dapple-b:4", 8),
	} {
		found, err := Search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		done := map[string]bool{}
		for _, rival := range found.Rivals {
			if rival.Plan == nil || done[rival.Plan.Schedule] || len(done) == 4 ||
				!schedule.Policy(rival.Plan.Weights).Synchronous() {
				continue
			}
			done[rival.Plan.Schedule] = true
			fixed := r
			fixed.Fix.Schedule = rival.Plan.Schedule
			own, err := Search(t.Context(), fixed)
			if err != nil {
				t.Fatal(err)
			}
			if own.Best.Schedule != rival.Plan.Schedule {
				t.Errorf("%s: asked for %s, got %s", r.Profile.Model, rival.Plan.Schedule, own.Best.Schedule)
			}
			if a, b := own.Best.Predicted.StepS, rival.Predicted.StepS; a > b*(1+tie) {
				t.Errorf("%s: %s takes %v s where it is fixed, and %v s as a rival", r.Profile.Model, rival.Plan.Schedule, a, b)
			}
		}
	}
}

// TestAdviceIsOfWhatBinds: twice the memory is advised only if memory is the limit. Explaining makes the best plan no
// slower: a better plan that a what-if search finds, and that this hardware can run, becomes the best.
func TestAdviceIsOfWhatBinds(t *testing.T) {
	t.Parallel()
	r := planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16)
	advised := func(e *Explanation) bool {
		return slices.ContainsFunc(e.Levers, func(l Lever) bool { return strings.Contains(l.Change, "memory") })
	}
	wide, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	before := wide.Best.Predicted.StepS
	e, err := wide.Explain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if advised(e) {
		t.Errorf("memory of 16 GiB holds nothing back, and the advice is %+v", e.Levers)
	}
	if after := wide.Best.Predicted.StepS; after > before {
		t.Errorf("explaining made the plan slower: %v s, then %v s", before, after)
	}
	fullest, held := slices.Max(wide.Best.Predicted.Needs()), 0
	for _, tenths := range []int64{2, 3, 5} {
		r.Cluster = r.Cluster.WithMemory(func(int64) int64 { return fullest * tenths / 10 })
		tight, err := Search(t.Context(), r)
		var memory *MemoryError
		if errors.As(err, &memory) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, err = tight.Explain(t.Context()); err != nil {
			t.Fatal(err)
		}
		slower := tight.Best.Predicted.StepS/wide.Best.Predicted.StepS - 1
		if slower > 0.1 { // the faster plan needs more than this memory, but hardly more than twice as much
			if held++; !advised(e) {
				t.Errorf("in %d/10 of the memory it is %.1f %% slower, and the advice is %+v", tenths, 100*slower, e.Levers)
			}
		}
		t.Logf("in %d/10 of the memory %.1f %% slower: %+v", tenths, 100*slower, e.Levers)
		for _, l := range e.Levers {
			if l.Gain < worthAdvising {
				t.Errorf("%+v is no advice", l)
			}
		}
	}
	if held == 0 {
		t.Error("no limit held the search back")
	}
}

// TestAdviceKeepsToADeadline: searches for better hardware share the time equally and stop at a deadline. So the
// explanation of a search with a time limit stays within the limit. Everything else is always explained.
func TestAdviceKeepsToADeadline(t *testing.T) {
	t.Parallel()
	r := planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16)
	var asked []string
	r.Asked = func(change string) { asked = append(asked, change) }
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	e, err := found.Explain(over)
	if err != nil || asked != nil || e.Levers != nil || e.Bottleneck == "" || len(e.Memory) == 0 {
		t.Errorf("behind the deadline it asked %q and explained %+v (%v)", asked, e, err)
	}
	if _, err := found.Explain(t.Context()); err != nil || len(asked) < 3 {
		t.Errorf("with time it asked %q (%v)", asked, err)
	}
}
