package check

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// checkServer refuses a Program with a server if its layout does not suit a server. It also refuses a server's settings
// in other Programs.
func checkServer(p *schedule.Program) error {
	if !p.Served() {
		if p.Staleness != nil || p.InOrder && !p.Elastic.Besides() {
			return fmt.Errorf("it has settings of a worker that holds the weights, and weight policy %q; they belong to %q",
				p.Weights, schedule.ASP)
		}
		return nil
	}
	switch {
	case len(p.Placement) != 2 || p.Stages != 1 || len(p.Placement[1][0]) != 1:
		return fmt.Errorf("weight policy %q on %d pipelines of %d stages; it has two of one: the workers that train, "+
			"and the one that holds the weights", p.Weights, len(p.Placement), p.Stages)
	case slices.Contains(p.Placement[0][0], p.Placement[1][0][0]):
		return fmt.Errorf("worker %d trains and holds the weights; it does the one or the other", p.Placement[1][0][0])
	case p.Replication != schedule.RoundRobin || p.PerMinibatch() != 1 || p.MicroBatches%p.Trainers() != 0:
		return fmt.Errorf("%d micro-batches in %d minibatches on %d workers, replication %s; a minibatch is one "+
			"micro-batch, of the workers in turn", p.MicroBatches, p.Period, p.Trainers(), p.Replication)
	case p.Staleness != nil && *p.Staleness < 0:
		return fmt.Errorf("staleness %d; a worker may be 0 minibatches ahead of the slowest, or more", *p.Staleness)
	}
	return nil
}

// servedHere refuses a server's instruction on a trainer, and a trainer's on the server. It also refuses split
// backwards, and transfers of another trainer's minibatch. In Programs without a server it refuses transfers to and
// from a server.
func servedHere(p *schedule.Program, in schedule.Instruction) error {
	toServer := slices.Contains([]schedule.Kind{schedule.SW, schedule.RG}, in.Kind)
	moves := toServer || slices.Contains([]schedule.Kind{schedule.RW, schedule.SG}, in.Kind)
	switch {
	case !p.Served() && moves:
		return fmt.Errorf("no worker of this program holds the weights for others; that is weight policy %s", schedule.ASP)
	case !p.Served():
		return nil
	case p.IsServer(int(in.Pipeline)):
		if !toServer && in.Kind != schedule.U && in.Kind != schedule.GN && in.Kind != schedule.CK &&
			in.Kind != schedule.EV {
			return fmt.Errorf("pipeline %d is the weights, which do not train", in.Pipeline)
		}
	case toServer || in.Kind == schedule.U || in.Kind == schedule.GN || in.Kind == schedule.I || in.Kind == schedule.W:
		return fmt.Errorf("a worker that trains does a forward and a whole backward; updates are where the weights are")
	case moves && p.TrainerOf(in) != int(in.Replica):
		return fmt.Errorf("this minibatch belongs to replica %d", p.TrainerOf(in))
	}
	return nil
}

// served checks that what an instruction needs is before it, in a Program with a server.
func (l *list) served(in schedule.Instruction) error {
	if !l.p.Served() {
		return nil
	}
	if missing, is := l.ahead(in); is {
		return fmt.Errorf("with staleness %d no worker may be farther ahead of another: %v must come before it",
			*l.p.Staleness, missing)
	}
	before := schedule.Instruction{}
	switch in.Kind {
	case schedule.F:
		before = in.As(schedule.RW)
	case schedule.SG:
		before = in.As(schedule.B)
	case schedule.RG:
		before = in.As(schedule.SW)
	case schedule.U, schedule.GN:
		before = in.As(schedule.RG)
	case schedule.SW:
		if before = in.As(schedule.U); int(in.Micro) < l.p.Trainers() {
			return nil
		}
		before.Micro -= int32(l.p.Trainers())
	default:
		return nil
	}
	if !l.have[before] {
		return fmt.Errorf("%v must come before it", before)
	}
	switch {
	case in.Kind == schedule.RG && l.hand != nil:
		return fmt.Errorf("the gradients of %v are in hand: their update must come before it", *l.hand)
	case in.Kind == schedule.RG:
		l.hand = &in
	case in.Kind == schedule.U:
		l.hand = nil
	}
	return nil
}

// ahead reports whether a server with InOrder sends weights to a trainer that is too far ahead of another trainer.
// `missing` is an update for the other trainer that must come before. A server without InOrder needs no check, because
// it waits by itself.
func (l *list) ahead(in schedule.Instruction) (missing schedule.Instruction, is bool) {
	if in.Kind != schedule.SW || !l.p.InOrder || l.p.Staleness == nil {
		return missing, false
	}
	trainers, all := l.p.Trainers(), l.p.Minibatches()
	due := int(in.Micro)/trainers - *l.p.Staleness // how many updates every trainer with more work must have had
	for t := 0; t < min(trainers, all) && due > 0; t++ {
		last := min(due-1, (all-1-t)/trainers)
		missing = in.As(schedule.U)
		missing.Micro = int32(last*trainers + t)
		if !l.have[missing] {
			return missing, true
		}
	}
	return missing, false
}
