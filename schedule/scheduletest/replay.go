package scheduletest

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Replay runs a lowered Program of one pipeline in a slow and simple way. It returns what is wrong with the Program, or
// nil. It uses only the meaning of each instruction. It walks whole lists for every rule, and shares nothing with
// check.Check or the Machine except the Program's fields and who sends to whom. Every instruction is executed as soon
// as it can be. Since lists never wait for the absence of a message, every order of execution has the same result.
func Replay(p *schedule.Program) error {
	r := &replay{p: p, stages: p.Placement[0], per: max(1, p.MicroBatches/max(1, p.Period))}
	for w := range p.Workers {
		var list schedule.List
		p.Walk(w, func(in schedule.Instruction) bool {
			list = append(list, in)
			return true
		})
		r.lists = append(r.lists, list)
		r.at = append(r.at, 0)
		r.made = append(r.made, map[schedule.Instruction]bool{})
		r.box = append(r.box, map[schedule.Instruction]bool{})
	}
	for _, list := range r.lists {
		for _, in := range list {
			if in.Kind == schedule.F {
				r.end = max(r.end, int(in.Micro)+1)
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for w, list := range r.lists {
			for r.at[w] < len(list) {
				in := list[r.at[w]]
				if r.made[w][in] {
					return fmt.Errorf("worker %d: %v twice", w, in)
				}
				ready, err := r.step(w, in)
				if err != nil {
					return fmt.Errorf("worker %d: %v: %w", w, in, err)
				}
				if !ready {
					break
				}
				r.at[w]++
				r.made[w][in] = true
				moved = true
			}
		}
	}
	return r.complete()
}

type replay struct {
	p      *schedule.Program
	stages [][]int // stage -> workers by replica
	per    int     // micro-batches of a minibatch
	end    int     // 1 + the last micro-batch of the stream
	lists  []schedule.List
	at     []int
	made   []map[schedule.Instruction]bool // by worker: instructions it has executed
	box    []map[schedule.Instruction]bool // by worker: messages that have arrived, by the sender's instruction
}

func as(in schedule.Instruction, k schedule.Kind) schedule.Instruction {
	in.Kind = k
	return in
}

// step reports whether an instruction can be executed now. An error means that the instruction is wrong at this place
// in the list.
func (r *replay) step(w int, in schedule.Instruction) (bool, error) {
	have := r.made[w]
	switch in.Kind {
	case schedule.F:
		if err := r.version(have, in); err != nil {
			return false, err
		}
		return true, r.input(w, in, schedule.RF, in.Stage-1, schedule.F, schedule.F)
	case schedule.B, schedule.I:
		if !have[as(in, schedule.F)] {
			return false, fmt.Errorf("no forward")
		}
		if have[as(in, schedule.B)] || have[as(in, schedule.I)] {
			return false, fmt.Errorf("its gradient is done")
		}
		return true, r.input(w, in, schedule.RB, in.Stage+1, schedule.B, schedule.I)
	case schedule.W:
		if !have[as(in, schedule.I)] {
			return false, fmt.Errorf("no input gradient")
		}
	case schedule.SF, schedule.SB:
		made := have[as(in, schedule.F)]
		if in.Kind == schedule.SB {
			made = have[as(in, schedule.B)] || have[as(in, schedule.I)]
		}
		if !made {
			return false, fmt.Errorf("nothing to send")
		}
		to := r.p.Receivers(in)
		if len(to) == 0 {
			return false, fmt.Errorf("nobody to send to")
		}
		for _, w := range to {
			r.box[w][in] = true
		}
	case schedule.RF, schedule.RB:
		return r.receive(w, in)
	case schedule.AR, schedule.TG, schedule.GN, schedule.U:
		return r.flush(have, in)
	}
	return true, nil
}

// neighbours returns the replicas of another stage that share rows with the replica of `in`.
func (r *replay) neighbours(in schedule.Instruction, stage int32) []int {
	if stage < 0 || int(stage) >= len(r.stages) {
		return nil
	}
	here, there := len(r.stages[in.Stage]), len(r.stages[stage])
	var out []int
	for j := range there {
		if r.p.Replication == schedule.Split {
			if j*here < (int(in.Replica)+1)*there && int(in.Replica)*there < (j+1)*here {
				out = append(out, j)
			}
		} else if r.turn(int(in.Micro), there) == j {
			out = append(out, j)
		}
	}
	return out
}

func (r *replay) turn(micro, replicas int) int { return micro % r.p.MicroBatches % replicas }

func (r *replay) mine(in schedule.Instruction) bool {
	n := len(r.stages[in.Stage])
	return r.p.Replication == schedule.Split || r.turn(int(in.Micro), n) == int(in.Replica)
}

// input checks that a computation has what it needs from a neighbouring stage. That is a received message, or the
// neighbour's computation if that stage is on the same worker.
func (r *replay) input(w int, in schedule.Instruction, receive schedule.Kind, stage int32, a, b schedule.Kind) error {
	for _, j := range r.neighbours(in, stage) {
		if r.stages[stage][j] != w {
			if !r.made[w][as(in, receive)] {
				return fmt.Errorf("nothing received")
			}
			continue
		}
		other := in
		other.Stage, other.Replica = stage, int16(j)
		if !r.made[w][as(other, a)] && !r.made[w][as(other, b)] {
			return fmt.Errorf("stage %d here has not computed", stage)
		}
	}
	return nil
}

// receive takes the messages of a receive, once all have arrived.
func (r *replay) receive(w int, in schedule.Instruction) (bool, error) {
	kind, stage := schedule.SF, in.Stage-1
	if in.Kind == schedule.RB {
		kind, stage = schedule.SB, in.Stage+1
	}
	var want []schedule.Instruction
	for _, j := range r.neighbours(in, stage) {
		if r.stages[stage][j] != w {
			sent := as(in, kind)
			sent.Stage, sent.Replica = stage, int16(j)
			want = append(want, sent)
		}
	}
	if len(want) == 0 {
		return false, fmt.Errorf("nobody to receive from")
	}
	for _, sent := range want {
		if !r.box[w][sent] {
			return false, nil
		}
	}
	for _, sent := range want {
		delete(r.box[w], sent)
	}
	return true, nil
}

// group returns how many micro-batches an update of a stage covers.
func (r *replay) group(stage int32) int {
	if n := len(r.stages[stage]); r.p.Weights != schedule.Sync && r.per == 1 && r.p.Replication == schedule.RoundRobin {
		return n
	}
	return r.per
}

// updates counts the updates that a worker has done for the replica of `in`.
func updates(have map[schedule.Instruction]bool, in schedule.Instruction) int {
	n := 0
	for u := range have {
		if u.Kind == schedule.U && u.Stage == in.Stage && u.Replica == in.Replica {
			n++
		}
	}
	return n
}

// version checks that the weights exist that a forward must use under the Program's policy.
func (r *replay) version(have map[schedule.Instruction]bool, f schedule.Instruction) error {
	need := 0
	switch g := r.group(f.Stage); r.p.Weights {
	case schedule.Sync:
		need = int(f.Micro) / g
	case schedule.DoubleBuffered:
		need = int(f.Micro)/g - 1
	case schedule.Vertical:
		need = r.entry(int(f.Micro)) / g
	}
	if got := updates(have, f); got < need {
		return fmt.Errorf("%d updates, it needs %d", got, need)
	}
	return nil
}

// entry returns how many micro-batches have contributed to the input stage's weights when a micro-batch enters.
func (r *replay) entry(micro int) int {
	for replica, w := range r.stages[0] {
		count := 0
		for _, in := range r.lists[w] {
			if in.Stage != 0 || int(in.Replica) != replica {
				continue
			}
			if in.Kind == schedule.U {
				count++
			}
			if in.Kind == schedule.F && int(in.Micro) == micro &&
				(r.p.Replication == schedule.RoundRobin || replica == len(r.stages[0])-1) {
				return count * r.group(0)
			}
		}
	}
	return 0
}

// flush handles an update or a collective. Every gradient of its group must exist. The worker must have issued the
// collectives of the group that come before it, and they must be complete.
func (r *replay) flush(have map[schedule.Instruction]bool, in schedule.Instruction) (bool, error) {
	if !r.wanted(in) {
		return false, fmt.Errorf("no gradient is of it")
	}
	last := (int(in.Micro)+1)*r.per - 1
	for m := max(0, last+1-r.group(in.Stage)); m <= last; m++ {
		b := as(in, schedule.B)
		b.Micro = int32(m)
		if !r.mine(b) || r.p.Weights != schedule.Sync && m >= r.end {
			continue
		}
		if !have[b] && !have[as(b, schedule.W)] {
			return false, fmt.Errorf("no gradient of micro-batch %d", m)
		}
	}
	for u := range have {
		if u.Stage != in.Stage || u.Replica != in.Replica {
			continue
		}
		switch u.Kind {
		case schedule.U:
			if u.Micro == in.Micro || in.Kind == schedule.U && u.Micro > in.Micro {
				return false, fmt.Errorf("%v is done", u)
			}
		case schedule.B, schedule.I, schedule.W:
			if int(u.Micro) > last {
				return false, fmt.Errorf("%v has added to the same gradients", u)
			}
		}
	}
	for c := range have { // a stage makes one sum at a time; a norm or an update does not wait for a later group's sum
		later := c.Micro > in.Micro && (in.Kind == schedule.GN || in.Kind == schedule.U)
		if isSum(c.Kind) && c.Stage == in.Stage && !later && !r.all(c) {
			return false, nil
		}
	}
	for _, k := range r.chain(in.Stage) {
		if k == in.Kind {
			break
		}
		if !have[as(in, k)] {
			return false, fmt.Errorf("no %v", k)
		}
		if !r.all(as(in, k)) {
			return false, nil
		}
	}
	return true, nil
}

// wanted reports whether some micro-batch's gradient goes into an update of this number.
func (r *replay) wanted(u schedule.Instruction) bool {
	g := r.group(u.Stage)
	for m := range r.end {
		if (m/g+1)*g/r.per-1 == int(u.Micro) {
			return true
		}
	}
	return false
}

// complete returns an error for anything that is left undone at the end.
func (r *replay) complete() error {
	for w, list := range r.lists {
		if r.at[w] < len(list) {
			return fmt.Errorf("worker %d never gets to %v", w, list[r.at[w]])
		}
		if len(r.box[w]) > 0 {
			return fmt.Errorf("worker %d leaves messages", w)
		}
		for in := range r.made[w] {
			if isSum(in.Kind) {
				if !r.all(in) {
					return fmt.Errorf("%v is not complete", in)
				}
				if !slices.Contains(r.chain(in.Stage), in.Kind) {
					return fmt.Errorf("%v belongs to nothing", in)
				}
			}
		}
	}
	for s, on := range r.stages {
		for replica, w := range on {
			at := schedule.Instruction{Stage: int32(s), Replica: int16(replica)}
			for m := range r.end {
				at.Micro = int32(m)
				if !r.mine(at) {
					continue
				}
				if !r.made[w][as(at, schedule.F)] {
					return fmt.Errorf("%v is missing", as(at, schedule.F))
				}
				if !r.made[w][as(at, schedule.B)] && !r.made[w][as(at, schedule.W)] {
					return fmt.Errorf("%v is missing", as(at, schedule.B))
				}
				u := as(at, schedule.U)
				g := r.group(int32(s))
				u.Micro = int32((m/g+1)*g/r.per - 1)
				for replica := range on {
					u.Replica = int16(replica)
					if !r.made[on[replica]][u] {
						return fmt.Errorf("%v is missing", u)
					}
				}
			}
		}
	}
	return nil
}
