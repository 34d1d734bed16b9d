package tune

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/schedule"
)

// A plan whose busiest worker computes for longer than a step, as a stream's may by rounding, waits for nothing: no
// rival is told that it waits more than a negative time.
func TestNoReasonHasANegativeTime(t *testing.T) {
	r := Request{Profile: plantest.Chain(4, 1), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 4}
	of := func(stepS float64, busyS ...float64) candidate {
		pl, err := plan.FromCuts([]int{2}, 4, 1, 4)
		if err != nil {
			t.Fatal(err)
		}
		return candidate{plan: pl, predicted: plan.Predicted{StepS: stepS, BusyS: busyS, MemoryBytes: []int64{1, 1}}}
	}
	s, err := newSearch(r)
	if err != nil {
		t.Fatal(err)
	}
	best := of(12e-3, 12.00166e-3, 12e-3)
	if p := best.parts(2); p.wait != 0 {
		t.Errorf("the best waits %v s", p.wait)
	}
	if why := s.loses(of(12.316e-3, 12e-3, 12e-3), best); why != "waits 0.316 ms" {
		t.Errorf("it loses since it %s", why)
	}
	for _, weights := range []schedule.Policy{schedule.Stash, schedule.DoubleBuffered, schedule.Elastic} {
		r.Fix = Overrides{Weights: weights}
		found, err := Search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, rival := range found.Rivals {
			if strings.Contains(rival.Why, " -") {
				t.Errorf("%s: %s", rival.Kind, rival.Why)
			}
		}
	}
}
