package tuning

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// The schedules with the best predictions are measured in several rounds, each once in a round, and their medians are
// compared. The planner's choice is compared with the fastest of these schedules.
func TestSchedulesAreTriedInTurn(t *testing.T) {
	var all []anySchedule
	for i := range triedSchedules + 2 {
		pl := &plan.Plan{MicroBatches: i + 1}
		if i == 1 {
			pl.Elastic = plan.NewElastic(2)
		}
		all = append(all, anySchedule{Rival: tune.Rival{Kind: "any", Plan: pl}})
	}
	all[3].Plan = nil // a baseline without a plan
	var order []int
	machine := func(_ context.Context, p *avgpipe.Pipelined, iterations int, record bool) (*avgpipe.Trial, error) {
		m := p.At.MicroBatches
		if want := avgpipe.Iterations(p.At, avgpipe.TraversalBatches); iterations != want || record ||
			p.At.Pipelines != p.Plan.Together() {
			t.Errorf("%s for %d iterations; want %d", p.At, iterations, want)
		}
		order = append(order, m)
		step := math.Abs(float64(m)-6) + 10 // six micro-batches are fastest
		if len(order) < triedSchedules {
			step *= 3 // a slow first round
		}
		return &avgpipe.Trial{Scored: avgpipe.Scored{At: p.At, StepS: step}}, nil
	}
	c := &cobra.Command{}
	c.SetContext(t.Context())
	if _, tried := behind(all); tried {
		t.Error("nothing was tried yet")
	}
	if err := inTurn(c, all, machine, &progress.Work{}); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 2, 3, 5, 6, 7, 8}; len(order) != scheduleRounds*len(want) || !slices.Equal(order[:7], want) ||
		!slices.Equal(order[7:14], want) {
		t.Errorf("tried in the order %v", order)
	}
	if all[0].MeasuredS != 15 || all[5].MeasuredS != 10 || all[3].MeasuredS != 0 || all[triedSchedules].MeasuredS != 0 {
		t.Errorf("measured %+v", all)
	}
	if off, tried := behind(all); !tried || math.Abs(off-0.5) > 1e-12 {
		t.Errorf("the choice is %v behind; want a half", off)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if c.SetContext(gone); inTurn(c, all, machine, &progress.Work{}) == nil {
		t.Error("goes on after it was stopped")
	}
}
