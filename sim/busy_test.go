package sim

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
	"pgregory.net/rapid"
)

// TestBusyIsOfTheSameStepsAsTheStep: no worker computes for longer than a step takes, even if times vary. The test
// sums, from the recorded events, how long each worker computes in each step. Then it takes the medians over the same
// steps as for the step time.
func TestBusyIsOfTheSameStepsAsTheStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := randomCase(t)
		p.Repeat = rapid.IntRange(1, 9).Draw(t, "steps")
		costs := randomCosts(t, p)
		spread := rapid.Float64Range(0, .4).Draw(t, "spread")
		tl, sum, err := Run(p, costs, Options{Record: true, Vary: func(w int, in schedule.Instruction, s float64) float64 {
			return s * jitter(in, spread)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if len(tl.Steps) == 0 {
			t.Skip("nothing trains")
		}
		steps, took := tl.Steps, []float64{tl.Steps[0].EndS - tl.Steps[0].StartS}
		if len(steps) > 1 {
			steps, took = steps[1:], nil
			for k, m := range steps {
				took = append(took, m.EndS-tl.Steps[k].EndS)
			}
		}
		want := middle(took)
		for w := range p.Workers {
			all := 0.0
			busy := make([]float64, len(steps))
			for _, e := range tl.Events {
				if e.Worker != w || e.Lane != trace.Compute || !trace.IsBusy(e.Kind) {
					continue
				}
				all += e.EndS - e.StartS
				for k, m := range steps {
					if e.Step == m.Step && e.Kind != "EV" {
						busy[k] += e.EndS - e.StartS
					}
				}
			}
			alike(t, "computing in all", sum.TotalS[w], all)
			alike(t, "computing", sum.BusyS[w], middle(busy))
			if sum.BusyS[w] > sum.StepS {
				t.Fatalf("worker %d computes %v s of a step of %v", w, sum.BusyS[w], sum.StepS)
			}
			want = max(want, middle(busy))
		}
		alike(t, "a step", sum.StepS, want)
	})
}

func middle(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return (xs[len(xs)/2] + xs[(len(xs)-1)/2]) / 2
}

func alike(t *rapid.T, what string, got, want float64) {
	if math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
		t.Fatalf("%s: %v s, by the events %v", what, got, want)
	}
}

// TestSteadilyNobodyComputesForLongerThanAStep: by chance the run of half of the stream ends late, at 20 s. The whole
// run has two more steps and ends only 10 s later, so these steps seem to take 5 s each. But worker 1 computes 5.5 s in
// a step, so a step takes 5.5 s. Worker 0 computes 4 s.
func TestSteadilyNobodyComputesForLongerThanAStep(t *testing.T) {
	whole := Summary{Steps: 4, EndS: 30, TotalS: []float64{16, 21}}
	got := whole.Steadily(Summary{Steps: 2, EndS: 20, TotalS: []float64{8, 10}}, nil)
	if got.StepS != 5.5 || got.BusyS[0] != 4 || got.BusyS[1] != 5.5 || math.Abs(got.Bubble-1.5/11) > 1e-12 {
		t.Errorf("%+v", got)
	}
}
