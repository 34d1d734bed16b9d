package lower

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Recorded returns a lowered Program of weight policy asp whose server follows a recorded order. The order lists the
// updates, and with which weights each minibatch was computed. Recorded refuses an order that does not have this
// Program's minibatches, or that no run can have.
func Recorded(p *schedule.Program, order []schedule.Applied) (*schedule.Program, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("schedule: the recorded order of %d updates: %s", len(order), fmt.Sprintf(format, args...))
	}
	if !p.Served() || !p.Lowered {
		return nil, bad("program %s has weights %s; an order of updates is of weights asp", p.Name, p.Weights)
	}
	if n := p.Minibatches(); n != len(order) {
		return nil, bad("the program has %d minibatches", n)
	}
	last := make([]int, p.Trainers()) // by trainer: the number of updates up to its own last one
	own := make([]int, p.Trainers())  // by trainer: its next minibatch
	for i := range own {
		own[i] = i
	}
	for k, a := range order {
		if a.Minibatch < 0 || a.Minibatch >= len(order) {
			return nil, bad("update %d is of minibatch %d; there are %d", k, a.Minibatch, len(order))
		}
		t := p.TrainerOf(schedule.Instruction{Micro: int32(a.Minibatch)})
		switch {
		case a.Minibatch != own[t]:
			return nil, bad("update %d is of minibatch %d; the next one of worker %d is %d", k, a.Minibatch,
				p.WorkerOf(0, 0, t), own[t])
		case a.Version < last[t] || a.Version > k:
			return nil, bad("update %d, of minibatch %d, goes by weights of %d updates; they are %d, with the worker's own "+
				"last one, to %d", k, a.Minibatch, a.Version, last[t], k)
		}
		own[t], last[t] = own[t]+p.Trainers(), k+1
	}
	return inOrder(p, order), nil
}

// inOrder returns the Program with every list written out, the server's in the given order.
func inOrder(p *schedule.Program, order []schedule.Applied) *schedule.Program {
	out := *p
	out.InOrder, out.Repeat, out.Body, out.Epilogue = true, 0, nil, nil
	out.Prologue = make(schedule.Part, p.Workers)
	server := p.WorkerOf(1, 0, 0)
	for w := range p.Workers {
		if w == server {
			continue
		}
		p.Walk(w, func(in schedule.Instruction) bool {
			out.Prologue[w] = append(out.Prologue[w], in)
			return true
		})
	}
	reads := slices.Clone(order)
	slices.SortFunc(reads, func(a, b schedule.Applied) int {
		return cmp.Or(a.Version-b.Version, a.Minibatch-b.Minibatch)
	})
	var list schedule.List
	for k, a := range order {
		for len(reads) > 0 && reads[0].Version == k {
			list = append(list, schedule.Instruction{Pipeline: 1, Kind: schedule.SW, Micro: int32(reads[0].Minibatch)})
			reads = reads[1:]
		}
		list = append(list, update(p, schedule.Instruction{Pipeline: 1, Micro: int32(a.Minibatch)})...)
	}
	out.Prologue[server] = list
	return &out
}
