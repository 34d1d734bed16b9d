package schedule

// Asynchronous data parallelism (ASP): one worker holds the weights, the server; each of the others, the trainers,
// has the whole model too. The Program has two pipelines of one stage. The replicas of pipeline 0 are the trainers,
// minibatch m is of trainer m mod r; pipeline 1 is the weights, on the server. For minibatch 4, of trainer 1, the
// trainer and the server do:
//
//	0RW4@r1 0F4@r1 0B4@r1 0SG4@r1      takes the weights that are sent to it, computes, sends its gradients
//	p1/0SW4 p1/0RG4 p1/0U4             sends the newest weights, takes the gradients, updates (p1/0GN4 in front: clips)
//
// The three of the server for one trainer's minibatches, one after the other, are a strand. A server has as many
// strands as there are trainers, and takes them by readiness (machine.Local): so its list says what there is to be done
// and, in each strand, in which order, but not how strands mix. With InOrder it does not: then the list is the order.
// What has happened (Applied) written as such a list is a Program like any other, which Check proves and which
// leaves the same bits at any speed (Recorded).
//
// An update goes by the gradients of one minibatch. Its staleness is how many updates were made between the weights
// that the gradients were computed with and the update itself: of r trainers alike r-1 in steady state.
// With Staleness s, SW of a trainer's k-th minibatch waits until every other trainer that has more to do has had k-s
// updates: no trainer begins a minibatch that is more than s ahead of the slowest's (Ho et al., More Effective
// Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS 2013).

// Served says whether one worker of a Program holds the weights, and the others fetch them for each minibatch.
func (p *Program) Served() bool { return p.Weights.Served() }

// IsServer says whether a pipeline is the weights that others fetch.
func (p *Program) IsServer(pipeline int) bool { return p.Served() && pipeline == 1 }

// Trainers is how many workers compute minibatches for a server.
func (p *Program) Trainers() int { return len(p.Placement[0][0]) }

// Loose says whether a worker takes its instructions by readiness: it is a server, and not held to its list.
func (p *Program) Loose(worker int) bool {
	return p.Served() && !p.InOrder && p.Lowered && len(p.Placement) == 2 && worker == p.WorkerOf(1, 0, 0)
}

// TrainerOf is the trainer whose minibatch an instruction of a served Program works for.
func (p *Program) TrainerOf(in Instruction) int { return p.ReplicaOf(in.Micro, p.Trainers()) }

// ofServer says whether a kind moves gradients to a server, or weights from it.
func ofServer(k Kind) bool { return k == SG || k == RG || k == SW || k == RW }

// OtherSide is what is at the other end of an SG, RG, SW or RW: the receive of a send, the send of a receive.
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

// Settled says whether behind an instruction its replica's part of a minibatch stands for good: its update, or what
// validates it; of a trainer the backward, since the update is elsewhere.
func (p *Program) Settled(in Instruction) bool {
	if p.Served() && !p.IsServer(int(in.Pipeline)) {
		return in.Kind == B
	}
	if p.Beside() && p.IsReference(int(in.Pipeline)) {
		return in.Kind == UR
	}
	return in.Kind == p.Settles()
}

// Parts is how many instructions of a worker settle a minibatch.
func (p *Program) Parts(worker, minibatch int) (n int) {
	for _, held := range p.StagesOf(worker) {
		if p.Served() && held[0] == 0 && held[2] != p.TrainerOf(Instruction{Micro: int32(minibatch)}) {
			continue
		}
		n++
	}
	return n
}

// Seen is one update of a pipeline of elastic averaging on a stage. Version is how many updates the reference had
// had that it was pulled towards.
type Seen struct {
	Pipeline, Stage, Minibatch int
	Version                    int
}

// Applied is one update of a server, in the order in which they were made: whose gradients, and how many updates the
// weights had had that they were computed with.
type Applied struct {
	Minibatch, Version int
}
