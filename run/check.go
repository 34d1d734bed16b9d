package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// Check says what Train would refuse, the checkpoint to go on from included, without
// running or writing anything.
func (c Config) Check() error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	p, err := ProgramOf(c.Plan, c.Model, c.Clip > 0, 1)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := executable(p, c.Plan); err != nil {
		return err
	}
	if err := c.ordered(p); err != nil {
		return err
	}
	if c.Resume == "" {
		return nil
	}
	from, err := openCheckpoint(c)
	if err != nil {
		return err
	}
	return from.Close()
}

// ordered refuses a Program whose sums do not ascend, unless any order will do.
func (c Config) ordered(p *schedule.Program) error {
	if c.AnyOrder {
		return nil
	}
	if wrong := p.OutOfOrder(c.Model.NormalisesMicroBatches() != nil); wrong != nil {
		return fmt.Errorf("run: %w", wrong)
	}
	return nil
}

// executable refuses a Program of training with an instruction that its worker could not execute, before
// anything of it begins: a stage that the worker does not hold, and what only the Programs that this package
// makes of evaluations and checkpoints have, which come with what they read and write.
func executable(p *schedule.Program, of *plan.Plan) error {
	_, s := schedule.FromPlan(of)
	holds := func(worker int, in schedule.Instruction) bool {
		on := s.Placement[in.Stage]
		return int(in.Replica) < len(on) && on[in.Replica] == worker
	}
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for w, list := range part {
			for _, in := range list {
				refuse := func(why string) error {
					return fmt.Errorf("run: program %s: worker %d: %v: %s", p.Name, w, in, why)
				}
				switch {
				case in.Kind == schedule.CK:
					return refuse("a run saves itself between two Programs, not within one; ask for checkpoints every so many steps")
				case in.Kind == schedule.EV:
					return refuse("a run evaluates between two Programs, not within one; ask for evaluations every so many steps")
				case in.Kind < schedule.F || in.Kind > schedule.PV:
					return refuse("this runtime does not execute it")
				case in.Kind != schedule.DR && !holds(w, in):
					return refuse("the plan does not put this stage on this worker")
				}
			}
		}
	}
	return nil
}
