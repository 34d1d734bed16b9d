package family

import (
	"fmt"

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
				return fmt.Errorf("%d micro-batches for %d replicas; each needs one at least", s.MicroBatches,
					len(s.Placement[0]))
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
