package schedule

import "slices"

// WorkerOf returns the worker that holds a replica of a stage.
func (p *Program) WorkerOf(pipeline, stage, replica int) int {
	return p.Placement[pipeline][stage][replica]
}

// StagesOf lists the virtual stages that a worker holds, over all pipelines, as
// (pipeline, stage, replica) in that order.
func (p *Program) StagesOf(worker int) [][3]int {
	var held [][3]int
	for pl, stages := range p.Placement {
		for s, workers := range stages {
			for r, w := range workers {
				if w == worker {
					held = append(held, [3]int{pl, s, r})
				}
			}
		}
	}
	return held
}

// ReplicaOf returns which of a stage's r replicas computes the micro-batch, under round robin.
func (p *Program) ReplicaOf(micro int32, r int) int {
	if p.MicroBatches > 0 {
		micro %= int32(p.MicroBatches)
		if micro < 0 {
			micro += int32(p.MicroBatches)
		}
	}
	return int(micro) % r
}

// Peers appends replicas of stage `other` to `dst`. They are those that share rows of a micro-batch with the replica of
// the instruction `in`.
func (p *Program) Peers(dst []int, in Instruction, other int32) []int {
	stages := p.Placement[in.Pipeline]
	if other < 0 || int(other) >= len(stages) {
		return dst
	}
	there := len(stages[other])
	if p.Replication != Split {
		return append(dst, p.ReplicaOf(in.Micro, there))
	}
	here := len(stages[in.Stage])
	k := int(in.Replica)
	for j := range there {
		if p.Share(k, here, j, there) {
			dst = append(dst, j)
		}
	}
	return dst
}

// Share reports whether two replicas of different stages share rows of some micro-batch. One is replica k of a stage
// with `here` replicas, the other is replica j of a stage with `there` replicas.
func (p *Program) Share(k, here, j, there int) bool {
	if p.Replication == Split {
		// Replica k of n holds the rows from k/n to (k+1)/n. The result says whether the two ranges overlap.
		return k*there < (j+1)*here && j*here < (k+1)*there
	}
	// A micro-batch m goes to replica m mod `here` of the one stage, and to replica m mod `there` of the other.
	for here != 0 {
		here, there = there%here, here
	}
	return k%there == j%there
}

// OtherEnd returns the stage at the other end of a transfer between stages; -1 for other kinds.
func OtherEnd(in Instruction) int32 {
	switch in.Kind {
	case SF, RB:
		return in.Stage + 1
	case RF, SB:
		return in.Stage - 1
	}
	return -1
}

// alone returns the worker at the other end of a transfer if neither stage is replicated. That is the usual case.
func (p *Program) alone(in Instruction, other int32) (worker int, yes bool) {
	stages := p.Placement[in.Pipeline]
	if other < 0 || int(other) >= len(stages) || len(stages[other]) != 1 || len(stages[in.Stage]) != 1 {
		return 0, false
	}
	return stages[other][0], true
}

// Receivers returns the other workers to which a send goes; nil for other kinds.
func (p *Program) Receivers(in Instruction) []int {
	if !in.Kind.IsSend() {
		return nil
	}
	return p.otherWorkers(in)
}

// Senders returns the workers whose messages a receive waits for; nil for other kinds.
func (p *Program) Senders(in Instruction) []int {
	if !in.Kind.IsReceive() {
		return nil
	}
	return p.otherWorkers(in)
}

func (p *Program) otherWorkers(in Instruction) []int {
	if ofServer(in.Kind) {
		_, w := p.otherSide(in)
		return []int{w}
	}
	other := OtherEnd(in)
	var room [8]int
	replicas := p.Peers(room[:0], in, other)
	if len(replicas) == 0 {
		return nil
	}
	self := p.WorkerOf(int(in.Pipeline), int(in.Stage), int(in.Replica))
	workers := make([]int, 0, len(replicas))
	for _, r := range replicas {
		if w := p.WorkerOf(int(in.Pipeline), int(other), r); w != self {
			workers = append(workers, w)
		}
	}
	return workers
}

// Sent returns the instruction that sent a receive's message. `replica` is the sender's replica of the stage at the
// other end.
func Sent(receive Instruction, replica int) Instruction {
	sent := receive
	sent.Stage, sent.Replica = OtherEnd(receive), int16(replica)
	sent.Kind = SF
	if receive.Kind == RB {
		sent.Kind = SB
	}
	return sent
}

// Expected calls yield for every message that a receive waits for, with the sender's instruction and worker. It does
// not allocate.
func (p *Program) Expected(receive Instruction, yield func(sent Instruction, from int) bool) {
	if ofServer(receive.Kind) {
		yield(p.otherSide(receive))
		return
	}
	other := OtherEnd(receive)
	self := p.WorkerOf(int(receive.Pipeline), int(receive.Stage), int(receive.Replica))
	if w, alone := p.alone(receive, other); alone {
		if w != self {
			yield(Sent(receive, 0), w)
		}
		return
	}
	var room [8]int
	for _, r := range p.Peers(room[:0], receive, other) {
		if w := p.WorkerOf(int(receive.Pipeline), int(other), r); w != self {
			if !yield(Sent(receive, r), w) {
				return
			}
		}
	}
}

// Recipients calls yield for every message of a send, with the receiving worker and the part that it gets. The sender's
// rows of the micro-batch are divided into `n` equal parts, and the message carries parts `lo` to `hi`-1. With round
// robin, `lo` is 0 and `hi` and `n` are 1, so the message carries all rows. Under Split, the message carries the rows
// that both sender and receiver hold. Recipients does not allocate.
func (p *Program) Recipients(send Instruction, yield func(to, lo, hi, n int) bool) {
	if ofServer(send.Kind) {
		_, to := p.otherSide(send)
		yield(to, 0, 1, 1)
		return
	}
	other := OtherEnd(send)
	self := p.WorkerOf(int(send.Pipeline), int(send.Stage), int(send.Replica))
	if w, alone := p.alone(send, other); alone {
		if w != self {
			yield(w, 0, 1, 1)
		}
		return
	}
	var room [8]int
	stages := p.Placement[send.Pipeline]
	for _, r := range p.Peers(room[:0], send, other) {
		w := stages[other][r]
		if w == self {
			continue
		}
		lo, hi, n := 0, 1, 1
		if p.Replication == Split {
			lo, hi, n = p.share(send, r, other)
		}
		if !yield(w, lo, hi, n) {
			return
		}
	}
}

// share returns the part of a sender's rows that replica r of the stage at the other end takes. Let `here` be the
// number of replicas of the sender's stage, and `there` that of the other stage. Divide the micro-batch into here*there
// units. Then the sender, replica k, has units k*there to (k+1)*there, and the receiver has units r*here to (r+1)*here.
func (p *Program) share(send Instruction, r int, other int32) (lo, hi, n int) {
	stages := p.Placement[send.Pipeline]
	here, there, k := len(stages[send.Stage]), len(stages[other]), int(send.Replica)
	return max(0, r*here-k*there), min(there, (r+1)*here-k*there), there
}

// Leader returns the first member of a collective, which is the same for all its members.
func (p *Program) Leader(in Instruction) Instruction {
	switch in.Kind {
	case TG:
		in.Stage = int32(p.TiedTo(int(in.Stage))[0])
	case GN:
		in.Stage = 0
	}
	in.Replica = 0
	return in
}

// Group returns the members of a collective in rank order, and their workers. A member is the instruction that the
// worker issues: AR over the replicas of a stage, TG over the replicas of the stages tied to it, GN over the replicas
// of all stages.
func (p *Program) Group(in Instruction) (members []Instruction, workers []int) {
	add := func(stage, replica int) {
		m := in
		m.Stage, m.Replica = int32(stage), int16(replica)
		members = append(members, m)
		workers = append(workers, p.WorkerOf(int(in.Pipeline), stage, replica))
	}
	stages := p.Placement[in.Pipeline]
	switch in.Kind {
	case AR:
		for r := range stages[in.Stage] {
			add(int(in.Stage), r)
		}
	case TG:
		for _, s := range p.TiedTo(int(in.Stage)) {
			for r := range stages[s] {
				add(s, r)
			}
		}
	case GN:
		for s := range stages {
			for r := range stages[s] {
				add(s, r)
			}
		}
	}
	return members, workers
}

// TiedTo returns every stage that shares a parameter with this one, including itself, ascending; nil if none does.
func (p *Program) TiedTo(stage int) []int {
	var stages []int
	for _, group := range p.Tied {
		if slices.Contains(group, stage) {
			stages = append(stages, group...)
		}
	}
	slices.Sort(stages)
	return slices.Compact(stages)
}
