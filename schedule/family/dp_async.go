package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/schedule"
)

// Asynchronous data parallelism without a parameter server (Li et al., Pipe-SGD, NeurIPS 2018, with a pipeline of width
// 2). Every replica of the one stage works through its micro-batches. The gradients of minibatch k are summed over the
// replicas during minibatch k+1, and no replica waits for this sum before it begins minibatch k+1. The update with this
// sum comes before minibatch k+2. Let w(k) be the weights after k updates, f_k the mean loss of minibatch k over all
// replicas, and lr the learning rate; then
//
//	w(k+1) = w(k) - lr grad f_k(w(k-1)),  w(-1) = w(0)
//
// This is the weight policy 2bw: a staleness of exactly one update, the same on every replica and in every run. A
// server that takes gradients as they come guarantees neither. A replica may be one minibatch ahead of the slowest. A
// minibatch has M = Settings.MicroBatches micro-batches over r replicas, at least one for each. Let F, B and U be the
// times of a forward, a backward and an update, and R that of an all-reduce. R does not count the part of the sum that
// runs during the last backward. If r does not divide M, the replicas take one more micro-batch in turn. They may
// be a minibatch apart, so none waits for the others' turns. The mean of steady steps is
//
//	max(M/r (F+B) + U, R)
//
// The price is a second copy of the gradients, since one is summed while the next is made. Each replica gathers its own
// batch-norm statistics, and only the average after the last minibatch is used. That is correct because statistics are
// linear in their inputs and training does not read them. One copy of the weights is enough, since an update comes only
// when no computation needs the version before it.
func init() {
	Register(Family{
		Name: "dp-async", Doc: "data parallelism that sums gradients beside the next minibatch, one update late " +
			"(Pipe-SGD)",
		Policies:     []schedule.Policy{schedule.DoubleBuffered},
		Replications: []schedule.Replication{schedule.RoundRobin}, Undivided: true,
		Place: func(workers, _ int) [][]int { return schedule.Replicated(1, workers) },
		Admits: func(s schedule.Settings) error {
			switch {
			case len(s.Placement) != 1 || len(s.Placement[0]) < 2:
				return fmt.Errorf("%d stages; it has one, on two workers at least", len(s.Placement))
			case s.MicroBatches < len(s.Placement[0]):
				return tooFew(s, 0)
			case s.Warmup != nil && s.Warmup[0] != 1:
				return fmt.Errorf("warm-up %d; data parallelism keeps one micro-batch at a time", s.Warmup[0])
			}
			return admitRoundRobin(s)
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			p, err := streamed(s, []int{1}, 2)
			if err == nil {
				p.DeferUpdates = true
			}
			return p, err
		},
	})
}

// tooFew returns the error for fewer micro-batches than a stage has replicas.
func tooFew(s schedule.Settings, stage int) error {
	return fmt.Errorf("%s for %s of stage %d; each needs one at least", terminal.Count(s.MicroBatches, "micro-batch"),
		terminal.Count(len(s.Placement[stage]), "replica"), stage)
}

// Asynchronous data parallelism with a server (ASP; PipeDream §5.2 compares with it). The last worker of the one stage
// holds the weights and updates them. Each of the others is a trainer with the whole model. It takes the newest
// weights, computes a minibatch and has its update made at once, whatever the others do. Let w(k) be the weights after
// k updates, and m the minibatch of the next update. m was computed with the weights after v(m) updates. With f_m the
// loss of minibatch m and lr the learning rate,
//
//	w(k+1) = w(k) - lr grad f_m(w(v(m)))
//
// Which minibatch is the k-th, and v(m), depend on timing. Minibatch m belongs to trainer m mod r, with r trainers, so
// each trainer's data do not depend on timing. Settings.Staleness limits how many minibatches a trainer may be ahead of
// the slowest. schedule/server.go explains how the Program expresses this.
//
// Let F and B be a trainer's times of a forward and a backward, and G and W those to transfer gradients and weights.
// Let U be the server's time of an update. If the server is always free when asked, a trainer takes F+B+G+U+W per
// minibatch, and r trainers do r minibatches in that time. If r*U is longer than that, the server is the bottleneck.
func init() {
	Register(Family{
		Name: "asp", Doc: "asynchronous data parallelism: the last worker holds the weights, each other one takes " +
			"the newest and updates at once (PipeDream §5.2)",
		Policies:     []schedule.Policy{schedule.ASP},
		Replications: []schedule.Replication{schedule.RoundRobin}, Undivided: true, Whole: true,
		Place: func(workers, _ int) [][]int { return schedule.Replicated(1, workers) },
		Admits: func(s schedule.Settings) error {
			switch {
			case len(s.Placement) != 1 || len(s.Placement[0]) < 2:
				return fmt.Errorf("stages on workers %v; it has one, the whole model, on two workers at least: the "+
					"last one holds the weights", s.Placement)
			case s.MicroBatches != 1:
				return fmt.Errorf("%d micro-batches; a minibatch is one micro-batch, of one worker", s.MicroBatches)
			case s.Warmup != nil && s.Warmup[0] != 1:
				return fmt.Errorf("warm-up %d; each worker has one minibatch at a time", s.Warmup[0])
			case s.Staleness != nil && (*s.Staleness < 0 || *s.Staleness > schedule.MaxMicro):
				return fmt.Errorf("staleness %d; a worker may be 0 minibatches ahead of the slowest, or up to %d",
					*s.Staleness, schedule.MaxMicro)
			}
			return nil
		},
		Generate: served,
	})
}

// served writes the computations of the trainers: one minibatch each in turn, forward and backward.
func served(s schedule.Settings) (*schedule.Program, error) {
	on := s.Placement[0]
	r := len(on) - 1
	p := s.Program()
	p.Placement = [][][]int{{on[:r]}, {on[r:]}}
	p.Staleness = s.Staleness
	p.MicroBatches, p.Period, p.Repeat = r, r, s.Repeat/r
	p.Body, p.Epilogue = turns(p, min(r, s.Repeat/r*r)), turns(p, s.Repeat%r)
	return p, nil
}

// turns returns the computations of one minibatch for each of the first trainers. It returns nil for 0 trainers.
func turns(p *schedule.Program, trainers int) schedule.Part {
	if trainers == 0 {
		return nil
	}
	part := make(schedule.Part, p.Workers)
	for i, w := range p.Placement[0][0][:trainers] {
		at := schedule.Instruction{Replica: int16(i), Micro: int32(i), Kind: schedule.F}
		part[w] = schedule.List{at, at.As(schedule.B)}
	}
	return part
}
