package machine

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// open holds the instructions that a worker has started or issued and that are not done.
type open struct {
	joined []schedule.Instruction // collectives, and updates of a reference beside the worker
	behind []schedule.Instruction // computations, in order
	sends  int
}

func (o *open) count() int { return len(o.joined) + len(o.behind) + o.sends }

// start adds an instruction that begins, if another instruction may wait until it is done.
func (o *open) start(in schedule.Instruction) {
	switch {
	case in.Kind.IsCompute():
		o.behind = append(o.behind, in)
	case in.Kind.IsSend():
		o.sends++
	case in.Kind.IsIssued():
		o.joined = append(o.joined, in)
	}
}

// undo removes the computation that began last, which is done.
func (o *open) undo() { o.behind = o.behind[:len(o.behind)-1] }

// end removes an instruction that is done, and reports whether it was in the `open`.
func (o *open) end(in schedule.Instruction) bool {
	was := o.count()
	switch {
	case in.Kind.IsSend():
		o.sends--
	case in.Kind.IsCompute():
		o.behind = without(o.behind, in)
	default:
		o.joined = without(o.joined, in)
	}
	return o.sends >= 0 && o.count() < was
}

func without(list []schedule.Instruction, in schedule.Instruction) []schedule.Instruction {
	if at := slices.Index(list, in); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// lacksDevice sets Device as what a Need lacks, if more than `ahead` computations are not done.
func (o *open) lacksDevice(n *Need, ahead int) {
	if len(o.behind) > ahead {
		n.Lack, n.For = Device, o.behind[0]
	}
}

// lacksSum sets in a Need the first incomplete collective whose result the Need's instruction uses.
func (o *open) lacksSum(n *Need, p *schedule.Program) {
	for _, c := range o.joined {
		if AwaitsSum(p, n.At, c) {
			n.Lack, n.For = Collective, c
			return
		}
	}
}
