package machine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// anyProgram draws a lowered Program: a random order, the order of a family under any of its policies, an evaluation or
// a checkpoint.
func anyProgram(t *testing.T, g *rand.Rand) *schedule.Program {
	t.Helper()
	o := lower.Options{Clip: g.IntN(2) == 0, PostValidate: g.IntN(2) == 0}
	for {
		p := drawn(t, g)
		if p.Lowered {
			return p
		}
		if g.IntN(4) == 0 && p.Stages > 1 {
			o.Tied = [][]int{{0, p.Stages - 1}}
		}
		lowered, err := lower.Lower(p, o)
		if err != nil {
			continue // lowering refuses ties of stages that update at different times
		}
		if _, err := check.Check(lowered); err == nil {
			return lowered
		}
	}
}

func drawn(t *testing.T, g *rand.Rand) *schedule.Program {
	switch g.IntN(8) {
	case 0, 1, 2:
		return scheduletest.Random(g.IntN, scheduletest.Everything())
	case 3:
		p, err := programs.Evaluation(schedule.Replicated(1+g.IntN(4), 1+g.IntN(2)), 1+g.IntN(20))
		if g.IntN(3) == 0 {
			p, err = programs.Checkpoint(schedule.Replicated(1+g.IntN(4), 1+g.IntN(2)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	families := family.All()
	for {
		f := families[g.IntN(len(families))]
		s := schedule.Settings{Placement: f.Placement(1+g.IntN(5), 1+g.IntN(3)), MicroBatches: 1 + g.IntN(10),
			Repeat: 1 + g.IntN(4)}
		if g.IntN(3) == 0 {
			s.Placement = schedule.Replicated(1+g.IntN(3), 1+g.IntN(3))
		}
		if g.IntN(2) == 0 {
			s.Replication = schedule.Split
		}
		if len(f.Policies) > 0 {
			s.Weights = f.Policies[g.IntN(len(f.Policies))]
		}
		if s.Weights == schedule.Elastic {
			s.Elastic = plan.NewElastic(1 + g.IntN(3))
		}
		if p, err := family.Generate(f.Name, s); err == nil {
			return p
		}
	}
}
