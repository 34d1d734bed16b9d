package tune

import (
	"context"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/predict"
)

// TestPlansOfOtherFamiliesAreMovedToo: of a chain of layers that no equal cut suits, the best plan
// of a family with several stages a worker, and of one without a flush, has no clearly better one a move
// away.
func TestPlansOfOtherFamiliesAreMovedToo(t *testing.T) {
	t.Parallel()
	p := chain(26, 1, 2)
	for i := range p.Layers {
		for k := range p.Layers[i].Costs {
			p.Layers[i].Costs[k].ForwardS *= float64(1 + (7*i)%5)
			p.Layers[i].Costs[k].BackwardS *= float64(1 + (5*i)%7)
		}
	}
	c := cluster.Local("cpu", 4, 0, 0, 0, 1e9, 1e9)
	for _, fix := range []Overrides{{Schedule: "interleaved"}, {Schedule: "zb-v"}, {Schedule: "chimera"},
		{Weights: schedule.Stash}} {
		r := Request{Profile: p, Cluster: c, Batch: 16, Fix: fix}
		found, err := Search(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSearch(r)
		if err != nil {
			t.Fatal(err)
		}
		if !movable(found.Best) {
			t.Errorf("%+v: %s", fix, found.Best.Why[0])
			continue
		}
		moves := 0
		s.move.nearby(found.Best, func(next *plan.Plan) bool {
			moves++
			if q, err := predict.Plan(p, c, next, false); err == nil && q.StepS < found.Best.Predicted.StepS*(1-2*worthMoving) {
				t.Errorf("%s %s: %v s, a move away %v s: %s", found.Best.Schedule, found.Best.Weights,
					found.Best.Predicted.StepS, q.StepS, describe(p, next))
				return false
			}
			return true
		})
		if moves < 4 {
			t.Errorf("%s: %d moves", found.Best.Schedule, moves)
		}
	}
}
