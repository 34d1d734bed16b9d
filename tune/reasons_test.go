package tune

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// TestNoReasonHasANegativeTime: no text that says why a plan lost has a negative time. Here the busiest worker computes
// for slightly longer than a step.
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
	if why := s.reasons.loses(of(12.316e-3, 12e-3, 12e-3), best); why != "busiest worker waits 0.316 ms" {
		t.Errorf("it loses since its %s", why)
	}
	// The rival waits 11 ms more than the best plan, but its step is only 1 ms longer, since it computes 10 ms less. So
	// its reason names both differences.
	if why := s.reasons.loses(of(121e-3, 100e-3, 100e-3), of(120e-3, 110e-3, 90e-3)); why !=
		"busiest worker computes 100 ms, not 110 ms, but waits 21.0 ms, not 10.0 ms" {
		t.Errorf("it loses since its %s", why)
	}
	// A difference of 0.04 % is shown as 0.0 %, so the rival is said to be as fast.
	if why := s.reasons.loses(of(12.0048e-3, 12.0048e-3, 12e-3), of(12e-3, 12e-3, 12e-3)); why !=
		"as fast, and holds as much" {
		t.Errorf("it loses since its %s", why)
	}
	// The difference in time is again too small to be shown, but this rival holds less. So it is not said to be as
	// fast.
	lean, fat := of(12.0048e-3, 12.0048e-3, 12e-3), of(12e-3, 12e-3, 12e-3)
	lean.predicted.MemoryBytes, fat.predicted.MemoryBytes = []int64{1 << 20, 1}, []int64{3 << 20, 1}
	if why := s.reasons.loses(lean, fat); why !=
		"0.04 % slower, though its fullest worker holds 1.00 MiB, not 3.00 MiB" {
		t.Errorf("it loses since its %s", why)
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

// TestAReasonNamesWhatIsComputedMore: if a rival computes more, its reason says why. Both plans compute 8 samples of 4
// layers of 3 s on two workers, 48 s on each worker. An update takes 4 s for a layer. Each worker of the pipeline
// updates 2 layers, and each worker of data parallelism updates all 4.
func TestAReasonNamesWhatIsComputedMore(t *testing.T) {
	p := plantest.Chain(4, 1, 2)
	for l := range p.Layers {
		p.Layers[l].Updates = []profile.DeviceUpdate{{Device: "cpu", UpdateTimes: profile.UpdateTimes{UpdateS: 4}}}
	}
	s, err := newSearch(Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 8})
	if err != nil {
		t.Fatal(err)
	}
	pipeline, err := plan.FromCuts([]int{2}, 4, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	parallel := *pipeline
	parallel.Schedule, parallel.MicroBatch, parallel.MicroBatches = "dp", 2, 4
	parallel.Stages = []plan.Stage{{FirstLayer: 0, LastLayer: 3, Devices: []int{0, 1}, Warmup: 1}}
	of := func(pl *plan.Plan, stepS, busyS float64) candidate {
		return candidate{plan: pl, predicted: plan.Predicted{StepS: stepS, BusyS: []float64{busyS, busyS},
			MemoryBytes: []int64{1, 1}}}
	}
	const want = "computes 14.3 % more: updates take 32,000 ms of all workers' time, not 16,000 ms"
	if why := s.reasons.loses(of(&parallel, 65, 64), of(pipeline, 57, 56)); why != want {
		t.Errorf("it %s; want: it %s", why, want)
	}
	// Without updates, a sample takes as long in micro-batches of 2 as of 1, so the size is not a reason.
	for l := range p.Layers {
		p.Layers[l].Updates = nil
	}
	if why := s.reasons.loses(of(&parallel, 65, 64), of(pipeline, 57, 56)); why != "computes 14.3 % more" {
		t.Errorf("it %s", why)
	}
}

// TestAReasonIsNotWhatBothPlansShare: the best plan and its rival use one of 8 workers, so idle workers are no reason.
// In the first case the rival is on a slower type of device, which is its reason. In the second case both are on the
// same type, and the rival's reason is only that it computes more. In the third case the best plan uses two workers.
// The rival uses one, and is slower because the other workers idle.
func TestAReasonIsNotWhatBothPlansShare(t *testing.T) {
	workers := cluster.Local("cpu", 8, 0, 0, 0, 1e9, 1e9)
	s, err := newSearch(Request{Profile: plantest.Chain(4, 1), Cluster: workers, Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster.Devices[0] = "slow"
	of := func(busyS float64, devices ...int) candidate {
		pl, err := plan.FromCuts(nil, 4, 1, 4)
		if err != nil {
			t.Fatal(err)
		}
		pl.Stages[0].Devices = devices
		c := candidate{plan: pl, predicted: plan.Predicted{StepS: busyS, MemoryBytes: []int64{1}}}
		for range devices {
			c.predicted.BusyS = append(c.predicted.BusyS, busyS)
		}
		return c
	}
	for _, c := range []struct {
		rival, best candidate
		want        string
	}{
		{of(1.25, 0), of(1, 4), "computes 25.0 % more: on slow, not cpu"},
		{of(1.25, 3), of(1, 4), "computes 25.0 % more"},
		{of(2, 3), of(1, 4, 5), "only 1 of 8 workers works"},
	} {
		if why := s.reasons.loses(c.rival, c.best); why != c.want {
			t.Errorf("it loses since it %s; want: %s", why, c.want)
		}
	}
}

// If flags leave only one plan, its reason says that the bound also covers other splits.
func TestTheOnlyPlanSaysWhatItsBoundCovers(t *testing.T) {
	r := Request{Profile: plantest.Chain(4, 1), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 4}
	r.Fix = Overrides{Stages: 2, Split: []int{1}, Schedule: "1f1b", MicroBatch: 1}
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if found.Tried != 1 || found.LowestS <= 0 || !strings.Contains(found.Best.Why[0], "other splits") {
		t.Errorf("%d tried, bound %v s: %q", found.Tried, found.LowestS, found.Best.Why)
	}
}

// TestPlansOfOtherSchedulesAreNotCounted: this search begins with a search of all schedules. The reason for the choice
// counts the plans of other schedules only in its total. zb-v gives each of 2 workers 2 stages. With 4 layers and
// micro-batches of 1, it can cut them in one way. So its plans differ only in which of the 4 stages recompute.
func TestPlansOfOtherSchedulesAreNotCounted(t *testing.T) {
	r := Request{Profile: plantest.Chain(4, 1), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 4}
	r.Fix = Overrides{Schedule: "zb-v", MicroBatch: 1}
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var simulated, all int
	why := found.Best.Why[0]
	const want = "of %d plans simulated with what is fixed (%d simulated in all) this takes the least; the others differ"
	if _, err := fmt.Sscanf(why, want, &simulated, &all); err != nil || simulated >= all || all != found.Tried ||
		simulated > 20 {
		t.Errorf("%d tried: %q", found.Tried, why)
	}
}
