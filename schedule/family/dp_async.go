package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/schedule"
)

// Asynchronous data parallelism without a parameter server (Li et al., Pipe-SGD, NeurIPS 2018, with a
// pipeline of width 2). Every replica of the one stage works through its micro-batches and never waits
// for the others' gradients of the minibatch that it has just done: their sum is taken beside the
// next minibatch, and the update that it makes stands in front of the minibatch behind that one. With w(k)
// the weights after k updates and f_k the mean loss of minibatch k over all replicas,
//
//	w(k+1) = w(k) - lr grad f_k(w(k-1)),  w(-1) = w(0)
//
// which is the weight policy 2bw: a bounded staleness of one update, the same on every replica and in
// every run, where a server that takes gradients as they come has neither. A replica may be
// one minibatch ahead of the slowest. A minibatch has M = Settings.MicroBatches micro-batches over r
// replicas, one for each at least; with an all-reduce of R a steady step takes
//
//	max(ceil(M/r)(F+B) + U, R)
//
// (what of the sum goes on within the backward that makes its last gradients left out), at the price
// of a second copy of the gradients: one is summed while the next is made. The statistics of a batch
// norm, of which each replica gathers its own, are averaged where nothing follows: they are linear in what
// they saw, and training does not read them. Of the weights
// one copy is enough, because an update stands where nobody needs the version before it any more.
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

// tooFew refuses fewer micro-batches than a stage has replicas.
func tooFew(s schedule.Settings, stage int) error {
	return fmt.Errorf("%s for %s of stage %d; each needs one at least", terminal.Count(s.MicroBatches, "micro-batch"),
		terminal.Count(len(s.Placement[stage]), "replica"), stage)
}

// Asynchronous data parallelism with a server (ASP; PipeDream §5.2 compares with it): of the workers of the one
// stage the last holds the weights and updates them, each of the others has the whole model and goes its own way.
// It takes the newest weights there are, computes a minibatch, and has its update made at once, whatever the others
// do. With w(k) the weights after k updates and m the minibatch of the next, computed with those after v(m),
//
//	w(k+1) = w(k) - lr grad f_m(w(v(m)))
//
// Which minibatch comes k-th, and v(m), is how it happens. Minibatch m is of trainer m mod r, as in every other
// order, so that what each computes on does not depend on time. Settings.Staleness bounds how many minibatches a
// trainer may be ahead of the slowest. schedule/server.go says how the Program puts it.
//
// With forward F, backward B, update U, and transfers of gradients and weights G and W a trainer takes F+B+G+U+W a
// minibatch as long as the server is not asked for two at once, and r trainers do r of them in that. The server is
// a bottleneck once r U is more.
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

// served writes what the trainers compute: in turn a minibatch each, forward and backward.
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

// turns is a minibatch of each of the first so many trainers; nil of none.
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
