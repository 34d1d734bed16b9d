package check

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// Validate refuses faults that show in single instructions: counts and ids out of range, and instructions on a worker
// that does not hold their stage. It is the cheap part of Check, and reads each instruction once. A Program that passes
// cannot make a Machine panic, but may deadlock.
func Validate(p *schedule.Program) error {
	if err := checkCounts(p); err != nil {
		return &Error{Program: p.Name, Worker: -1, Position: -1, Why: err.Error()}
	}
	if err := names.Check(p.Name); err != nil {
		return &Error{Worker: -1, Position: -1, Why: "it has " + err.Error()}
	}
	for _, holds := range []func(*schedule.Program) error{checkPlacement, checkServer, checkElastic, lower.CheckTies} {
		if err := holds(p); err != nil {
			return &Error{Program: p.Name, Worker: -1, Position: -1, Why: err.Error()}
		}
	}
	tied := make([]bool, p.Stages)
	for _, stages := range p.Tied {
		for _, s := range stages {
			tied[s] = true
		}
	}
	for k, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		if len(part) > p.Workers {
			return &Error{Program: p.Name, Worker: -1, Position: -1, Why: fmt.Sprintf("its %s has %d lists for %d workers",
				schedule.PartNames()[k], len(part), p.Workers)}
		}
		for w, list := range part {
			for i, in := range list {
				err := checkFields(p, tied, w, in)
				if err == nil {
					err = checkNumber(p, k, in)
				}
				if err != nil {
					return &Error{Program: p.Name, Worker: w, Position: i, Instruction: in, Why: err.Error(),
						part: k, at: i, written: in}
				}
			}
		}
	}
	return nil
}

// checkCounts refuses settings of a Program that are out of range or contradict each other.
func checkCounts(p *schedule.Program) error {
	switch {
	case p.Workers < 1 || p.Workers > schedule.MaxWorkers:
		return fmt.Errorf("it has %d workers; it can have 1 to %d", p.Workers, schedule.MaxWorkers)
	case p.Stages < 1 || p.Stages > schedule.MaxStage:
		return fmt.Errorf("it has %d stages; it can have 1 to %d", p.Stages, schedule.MaxStage)
	case len(p.Placement) < 1 || len(p.Placement) > schedule.MaxPipeline:
		return fmt.Errorf("it places %d pipelines; it can have 1 to %d", len(p.Placement), schedule.MaxPipeline)
	case p.MicroBatches < 1 || p.Repeat < 0 || int64(p.MicroBatches)*int64(max(p.Repeat, 1)) > schedule.MaxMicro:
		return fmt.Errorf("%d micro-batches repeated %d times; there can be 1 to %d in all", p.MicroBatches, p.Repeat,
			schedule.MaxMicro)
	case p.Period < 1 || p.Period > p.MicroBatches || p.MicroBatches%p.Period != 0:
		return fmt.Errorf("its period is %d minibatches; it must be 1 at least, with as many of its %d micro-batches in each",
			p.Period, p.MicroBatches)
	case len(p.Recompute) != 0 && len(p.Recompute) != p.Stages:
		return fmt.Errorf("%d recompute settings for %d stages", len(p.Recompute), p.Stages)
	case !p.Weights.Known():
		return fmt.Errorf("weight policy %q; there are %q", p.Weights, schedule.Policies())
	case p.DeferUpdates && (!p.Weights.Defers() || oneReplica(p)):
		return fmt.Errorf("its updates are put off until a forward needs them: that is for weights 2bw and " +
			"stages of several replicas")
	case p.PostValidate && (!p.Weights.Synchronous() || !p.Clip || p.Period != 1):
		return fmt.Errorf("its updates are validated later: that is for synchronous weights with a gradient norm, " +
			"one step a repetition")
	case p.Replication != schedule.Split && p.Replication != schedule.RoundRobin:
		return fmt.Errorf("replication %q; it is %q or %q", p.Replication, schedule.Split, schedule.RoundRobin)
	}
	return nil
}

// checkPlacement refuses missing stages, and stages without workers. It also refuses workers that do not exist, and a
// stage that is twice on one worker in the same pipeline.
func checkPlacement(p *schedule.Program) error {
	placed, at := make([]int, p.Workers), 0 // by worker: number (at) of the last stage that was found on it
	for pl, stages := range p.Placement {
		if len(stages) != p.Stages {
			return fmt.Errorf("pipeline %d places %d of %d stages", pl, len(stages), p.Stages)
		}
		for s, on := range stages {
			if len(on) == 0 || len(on) > schedule.MaxReplica {
				return fmt.Errorf("stage %d of pipeline %d is on %d workers; it needs 1 to %d", s, pl, len(on),
					schedule.MaxReplica)
			}
			at++
			for _, w := range on {
				if w < 0 || w >= p.Workers {
					return fmt.Errorf("stage %d of pipeline %d is on worker %d; workers are 0 to %d", s, pl, w, p.Workers-1)
				}
				if placed[w] == at {
					return fmt.Errorf("stage %d of pipeline %d is on worker %d twice", s, pl, w)
				}
				placed[w] = at
			}
		}
	}
	return nil
}

// checkNumber refuses a micro-batch or minibatch number that is negative or too large for a Key. In the body it looks
// at the first and the last repetition. A minibatch's number is also too large if the numbers of its micro-batches are,
// except in a DR.
func checkNumber(p *schedule.Program, part int, in schedule.Instruction) error {
	step, what, most := int64(p.MicroBatches), "micro-batch", int64(schedule.MaxMicro)
	if in.Kind.OfMinibatch() {
		step, what = int64(p.Period), "minibatch"
		if in.Kind != schedule.DR { // a DR's number says nothing about micro-batches
			most /= int64(p.PerMinibatch())
		}
	}
	first, last := int64(in.Micro), int64(in.Micro)
	switch part {
	case 1:
		last += step * int64(max(0, p.Repeat-1))
	case 2:
		first += step * int64(p.Repeat)
		last = first
	}
	if first < 0 || last > most {
		return fmt.Errorf("counted from the beginning of the program it is of %s %d to %d; they are 0 to %d", what,
			first, last, most)
	}
	return nil
}

// checkFields refuses an instruction whose fields are out of range, or whose worker or Program cannot have it. `tied`
// says which stages share a parameter.
func checkFields(p *schedule.Program, tied []bool, w int, in schedule.Instruction) error {
	if in.Kind == schedule.DR {
		return nil
	}
	if !in.Kind.Known() {
		return fmt.Errorf("there is no such kind")
	}
	if int(in.Pipeline) < 0 || int(in.Pipeline) >= len(p.Placement) {
		return fmt.Errorf("there are %d pipelines, counted from 0", len(p.Placement))
	}
	if in.Stage < 0 || int(in.Stage) >= p.Stages {
		return fmt.Errorf("stages are 0 to %d", p.Stages-1)
	}
	if p.IsReference(int(in.Pipeline)) {
		switch in.Kind {
		case schedule.U, schedule.CK, schedule.EV, schedule.SF, schedule.RF, schedule.UR:
		default:
			return fmt.Errorf("pipeline %d is the reference, which does not train", in.Pipeline)
		}
	}
	if in.Kind == schedule.UR && !(p.Beside() && p.IsReference(int(in.Pipeline))) {
		return fmt.Errorf("it is the update of a reference beside the pipelines, which this program has not")
	}
	if in.Kind == schedule.U && p.Beside() && p.IsReference(int(in.Pipeline)) {
		return fmt.Errorf("the reference is beside the pipelines: its update is %v", in.As(schedule.UR))
	}
	if err := servedHere(p, in); err != nil {
		return err
	}
	on := p.Placement[in.Pipeline][in.Stage]
	if in.Replica < 0 || int(in.Replica) >= len(on) {
		return fmt.Errorf("stage %d has %d replicas, counted from 0", in.Stage, len(on))
	}
	if on[in.Replica] != w {
		return fmt.Errorf("replica %d of stage %d is on worker %d, not here", in.Replica, in.Stage, on[in.Replica])
	}
	switch {
	case in.Kind == schedule.AR && len(on) == 1:
		return fmt.Errorf("stage %d has one replica, and nothing to sum", in.Stage)
	case in.Kind == schedule.TG && !tied[in.Stage]:
		return fmt.Errorf("stage %d shares no parameter, and has nothing to sum", in.Stage)
	case in.Kind == schedule.GN && !p.Clip:
		return fmt.Errorf("updates of this program need no gradient norm; one that they need is said by clip")
	}
	if !in.Kind.OfMinibatch() {
		if n := len(on); p.Replication == schedule.RoundRobin && n > 1 && p.ReplicaOf(in.Micro, n) != int(in.Replica) {
			return fmt.Errorf("under round robin this micro-batch belongs to replica %d", p.ReplicaOf(in.Micro, n))
		}
	}
	return nil
}

// oneReplica reports whether some stage has only one replica, so that there is nothing to sum.
func oneReplica(p *schedule.Program) bool {
	return slices.ContainsFunc(p.Placement, func(stages [][]int) bool {
		return slices.ContainsFunc(stages, func(on []int) bool { return len(on) < 2 })
	})
}
