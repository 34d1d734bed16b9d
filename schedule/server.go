package schedule

// Asynchronous data parallelism (ASP). One worker, the server, holds the weights. Each of the others, the trainers, has
// the whole model too. The Program has two pipelines of one stage. The r replicas of pipeline 0 are the trainers, and
// minibatch m belongs to trainer m mod r. Pipeline 1 is the weights on the server. For minibatch 4, of trainer 1, the
// trainer and the server do:
//
//   0RW4@r1 0F4@r1 0B4@r1 0SG4@r1      receives the weights, computes, sends its gradients
//   p1/0SW4 p1/0RG4 p1/0U4             sends the newest weights, receives the gradients, updates (clips with p1/0GN4)
//
// The server's three instructions for each minibatch of one trainer, in order, are a strand. A server has one strand
// for each trainer, and executes whichever strand is ready (machine.Local). So its list gives the order within each
// strand, but not how strands mix. With InOrder the list is the order. lower.Recorded writes a run's order (Applied) as
// such a list. The result is a Program that passes Check. It computes the same bits as the run, whatever the timing.
//
// An update uses the gradients of one minibatch. Its staleness is the number of updates between the weights with which
// the gradients were computed and the update itself: r-1 in steady state for r equal trainers. With Staleness s, the SW
// of a trainer's k-th minibatch waits until every other trainer with more work has had k-s updates. So no trainer
// begins a minibatch more than s ahead of the slowest (Ho et al., More Effective Distributed ML via a Stale Synchronous
// Parallel Parameter Server, NIPS 2013).

// Served reports whether one worker of a Program holds the weights, and the others fetch them for each minibatch.
func (p *Program) Served() bool { return p.Weights.Served() }

// IsServer reports whether a pipeline stands for the weights on the server.
func (p *Program) IsServer(pipeline int) bool { return p.Served() && pipeline == 1 }

// Trainers returns how many workers compute minibatches for a server.
func (p *Program) Trainers() int { return len(p.Placement[0][0]) }

// Loose reports whether a worker executes whichever of its instructions is ready. Only a server without InOrder does.
func (p *Program) Loose(worker int) bool {
	return p.Served() && !p.InOrder && p.Lowered && len(p.Placement) == 2 && worker == p.WorkerOf(1, 0, 0)
}

// TrainerOf returns the trainer of an instruction's minibatch, in a Program with a server.
func (p *Program) TrainerOf(in Instruction) int { return p.ReplicaOf(in.Micro, p.Trainers()) }

// ofServer reports whether a kind moves gradients to a server, or weights from it.
func ofServer(k Kind) bool { return k == SG || k == RG || k == SW || k == RW }

// OtherSide returns the other end of an SG, RG, SW or RW: the receive for a send, and the send for a receive.
func (p *Program) OtherSide(in Instruction) Instruction {
	other, _ := p.otherSide(in)
	return other
}

func (p *Program) otherSide(in Instruction) (other Instruction, worker int) {
	other = in
	switch in.Kind {
	case SG:
		other.Kind = RG
	case RG:
		other.Kind = SG
	case SW:
		other.Kind = RW
	case RW:
		other.Kind = SW
	}
	if other.Pipeline, other.Replica = 1, 0; in.Pipeline == 1 {
		other.Pipeline, other.Replica = 0, int16(p.TrainerOf(in))
	}
	return other, p.WorkerOf(int(other.Pipeline), int(other.Stage), int(other.Replica))
}

// Settled reports whether an instruction makes its replica's part of a minibatch final. That instruction is the update,
// or the validation of the update. On a trainer it is the backward, since the update is on the server.
func (p *Program) Settled(in Instruction) bool {
	if p.Served() && !p.IsServer(int(in.Pipeline)) {
		return in.Kind == B
	}
	if p.Beside() && p.IsReference(int(in.Pipeline)) {
		return in.Kind == UR
	}
	return in.Kind == p.Settles()
}

// Parts returns how many of a worker's instructions settle a minibatch.
func (p *Program) Parts(worker, minibatch int) (n int) {
	for _, held := range p.StagesOf(worker) {
		if p.Served() && held[0] == 0 && held[2] != p.TrainerOf(Instruction{Micro: int32(minibatch)}) {
			continue
		}
		n++
	}
	return n
}

// Seen is one update of a pipeline of elastic averaging on a stage. The pipeline was pulled towards the reference as it
// was after Version updates.
type Seen struct {
	Pipeline, Stage, Minibatch int
	Version                    int
}

// Applied is one update of a server. A list of them is in the order in which updates were made. Version is the version
// of the weights with which the minibatch was computed.
type Applied struct {
	Minibatch, Version int
}
