package run

import (
	"cmp"
	"fmt"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// Check returns the error with which Train would refuse this Config, without running or writing anything. It also
// checks the checkpoint to resume from.
func (c Config) Check() error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	p, err := programs.AtLeast(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := c.runnable(p); err != nil {
		return err
	}
	if c.Resume.At == "" {
		return nil
	}
	if c.Resume.Open != nil {
		return c.fits(c.Resume.Open)
	}
	from, err := openCheckpoint(c)
	if err != nil {
		return err
	}
	return from.Close()
}

// checkSteps returns an error if this run needs a Program with a number of steps that the schedule cannot have. A run's
// Programs end at evaluations and checkpoints, so their numbers of steps differ. It is called before the first step.
func (l *leader) checkSteps() error {
	c := l.config
	if c.Next != nil {
		return nil
	}
	if f, err := family.Lookup(c.Plan.Schedule); err != nil || f.Least == 0 {
		return err
	}
	seen := map[int]bool{}
	for from := l.done; from < c.Train.Steps; {
		end := min(l.boundary(from), from+c.longest)
		if steps := end - from; !seen[steps] {
			seen[steps] = true
			if _, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, steps); err != nil {
				return fmt.Errorf("run: steps %d to %d: %w", from+1, end, err)
			}
		}
		from = end
	}
	return nil
}

// runnable returns an error for a Program that cannot run to its end or does not fit this plan's workers. Unless
// Train.AnyOrder is set, it also refuses a Program that does not add gradients in ascending order of micro-batches.
func (c Config) runnable(p *schedule.Program) error {
	if _, err := check.Check(p); err != nil {
		return err
	}
	return cmp.Or(executable(p, c.Plan), c.ordered(p))
}

// ordered returns an error for a Program that does not add gradients in ascending order of micro-batches. With
// Train.AnyOrder it returns none.
func (c Config) ordered(p *schedule.Program) error {
	if c.Train.AnyOrder {
		return nil
	}
	if wrong := check.OutOfOrder(p, c.Model.NormalisesMicroBatches() != nil); wrong != nil {
		return fmt.Errorf("run: %w", wrong)
	}
	return nil
}

// executable returns an error for a Program with an instruction that its worker cannot execute. The instruction may be
// for a stage that the worker does not hold. It may also be a save or an evaluation, because a run has separate
// Programs for these. If stages save themselves, leader.saving adds the saves after this check.
func executable(p *schedule.Program, of *plan.Plan) error {
	_, s := schedule.FromPlan(of)
	holds := func(worker int, in schedule.Instruction) bool {
		on := s.Placement[in.Stage]
		if p.IsServer(int(in.Pipeline)) { // the last of its stage's workers is the server
			on = on[len(on)-1:]
		}
		return int(in.Replica) < len(on) && on[in.Replica] == worker
	}
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for w, list := range part {
			for _, in := range list {
				refuse := func(why string) error {
					return fmt.Errorf("run: program %s: worker %d: %v: %s", p.Name, w, in, why)
				}
				switch {
				case in.Kind == schedule.CK, in.Kind == schedule.EV:
					return refuse("a run saves and evaluates between two Programs by itself, every so many steps")
				case in.Kind != schedule.DR && !holds(w, in):
					return refuse("the plan does not put this stage on this worker")
				}
			}
		}
	}
	return nil
}

// CheckPlan returns an error for a plan that Train cannot carry out on this model. perSlice is Training.PerSlice.
func CheckPlan(p *plan.Plan, m *model.Model, perSlice bool) error {
	if id := m.ID(); p.ModelID != "" && p.ModelID != id {
		return fmt.Errorf("run: the plan is for model %s (%s); this is %s (%s)", p.Model, p.ModelID, m.Name, id)
	}
	if p.MicroBatch < 1 || p.MicroBatches < 1 {
		return fmt.Errorf("run: the plan has %d micro-batches of %d samples; both must be at least 1",
			p.MicroBatches, p.MicroBatch)
	}
	if p.Precision != "" && p.Precision != "f32" {
		return fmt.Errorf("run: the plan is for %s; this runtime trains in f32, and other precisions are planned and "+
			"simulated alone: plan without --precision", p.Precision)
	}
	if p.Tensor != nil {
		return fmt.Errorf("run: the plan's devices are tensor-parallel groups of %d, which are planned, simulated and "+
			"exported to Megatron-LM, not executed: plan without --tensor", p.Tensor.Devices)
	}
	if what := p.PlansOnly(); what != "" {
		return fmt.Errorf("run: of the plan %s, which is planned, simulated and exported, not executed here: plan without "+
			"--shard, with --gradients overlapped or bucket=SIZE, and --recompute none, stage or every:K", what)
	}
	if len(p.Stages) == 0 {
		return fmt.Errorf("run: the plan has no stages")
	}
	for at, l := range p.Order {
		if at != l {
			return fmt.Errorf("run: the plan has layer %d at position %d of its own order; this runtime executes layers "+
				"in the model's order", l, at)
		}
	}
	next := 0
	for i, s := range p.Stages {
		if s.FirstLayer != next && !p.Shares(i) || s.LastLayer < s.FirstLayer {
			return fmt.Errorf("run: stage %d has layers %d to %d; it must begin with layer %d",
				i, s.FirstLayer, s.LastLayer, next)
		}
		if p.Replication == string(schedule.Split) && len(s.Devices) > p.MicroBatch {
			return fmt.Errorf("run: stage %d splits micro-batches of %d samples over %d replicas; each needs one at least",
				i, p.MicroBatch, len(s.Devices))
		}
		next = s.LastLayer + 1
	}
	if next != len(m.Layers) {
		return fmt.Errorf("run: the plan ends with layer %d; %s has layers 0 to %d", next-1, m.Name, len(m.Layers)-1)
	}
	if err := divisible(p, m); err != nil {
		return err
	}
	if schedule.Policy(p.Weights).Served() {
		if layer, statistic := running(m); layer != "" {
			return fmt.Errorf("run: layer %s has running statistics (%s), which each worker would gather by itself: with "+
				"weights %s one worker holds the weights, and gradients alone go there; use schedule dp or dp-async, or a "+
				"model without batch norm", layer, statistic, p.Weights)
		}
	}
	if l := m.NormalisesMicroBatches(); l != nil && !perSlice && splits(p) {
		return fmt.Errorf("run: the plan splits micro-batches over replicas, and layer %s normalises over whole ones; "+
			"set batch_norm: per_slice to have it normalise over slices", l.Name)
	}
	return nil
}
