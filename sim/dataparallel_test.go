package sim

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestDataParallelSteps checks a step of M micro-batches on r workers. F and B are the times of the whole model's
// forward and backward, R is that of an all-reduce and U that of an update:
//
//	dp           ceil(M/r)(F+B) + R + U
//	dp-overlap   the same with R replaced by max(R/G, R - B(1-1/G))
//
// Here G equal groups of layers are summed one after the other while the backward goes on. The last group's gradients
// are ready B/G after the backward begins, and each further group's B/G later (Li et al., VLDB 2020, §3.2). With G = 1,
// dp-overlap takes as long as dp.
func TestDataParallelSteps(t *testing.T) {
	const F, U = 1.0, 0.25
	for _, r := range []int{2, 3, 4, 8} {
		for _, M := range []int{r, 2 * r, 4 * r, 2*r + 1} {
			for _, B := range []float64{1, 2} {
				for _, R := range []float64{0, 0.5, 1, 2, 5} {
					work := math.Ceil(float64(M)/float64(r))*(F+B) + U
					c := chunked(1, 1, F, B/2, B/2)
					c.Stages[0][0].AllReduceS, c.Stages[0][0].UpdateS = R, U
					exactly(t, simulate(t, "dp", schedule.Replicated(1, r), M, 1, c).StepS, work+R, "dp r=%d M=%d B=%v R=%v", r, M, B,
						R)
					f, err := family.Lookup("dp-overlap")
					if err != nil {
						t.Fatal(err)
					}
					for _, G := range []int{1, 2, 4, 8} {
						g := float64(G)
						c := chunked(G, G, F, B/2, B/2)
						for i := range c.Stages {
							c.Stages[i][0].AllReduceS, c.Stages[i][0].UpdateS = R/g, U/g
						}
						// If the last round is uneven, a replica without a micro-batch in it begins its all-reduces
						// sooner. That does not change the time.
						want := work + max(R/g, R-B*(1-1/g))
						exactly(t, simulate(t, "dp-overlap", f.Placement(r, G), M, 1, c).StepS, want, "dp-overlap r=%d M=%d B=%v R=%v "+
							"G=%d", r, M, B, R, G)
					}
				}
			}
		}
	}
}

// TestAsynchronousDataParallelSteps: the all-reduce, of R seconds, runs during the next minibatch of M micro-batches on
// r workers. With F, B and U for a forward, a backward and an update, a steady step takes max(ceil(M/r)(F+B) + U, R).
// Workers hold two copies of the gradients (Li et al., Pipe-SGD, NeurIPS 2018, §3, width 2).
func TestAsynchronousDataParallelSteps(t *testing.T) {
	const F, B, U, weights = 1.0, 2.0, 0.25, 1000
	for _, r := range []int{2, 3, 4, 8} {
		for _, M := range []int{r, 2 * r, 4 * r} {
			for _, R := range []float64{0, 1, 2.5, 5, 20} {
				p, err := family.Generate("dp-async", schedule.Settings{Placement: schedule.Replicated(1, r), MicroBatches: M,
					Repeat: 12})
				if err == nil {
					p, err = lower.Lower(p, lower.Options{})
				}
				if err != nil {
					t.Fatal(err)
				}
				c := chunked(1, 1, F, B/2, B/2)
				k := &c.Stages[0][0]
				k.AllReduceS, k.UpdateS, k.FixedBytes, k.ParameterBytes = R, U, weights, weights
				_, sum, err := Run(p, c, Options{})
				if err != nil {
					t.Fatal(err)
				}
				exactly(t, sum.StepS, max(float64(M/r)*(F+B)+U, R), "r=%d M=%d R=%v", r, M, R)
				for w, bytes := range sum.PeakBytes {
					want := int64(weights + 2*weights)
					if M > r {
						want++ // a further micro-batch is in flight while its minibatch already has gradients
					}
					if bytes != want {
						t.Errorf("r=%d M=%d: worker %d holds %d bytes, want the weights and two copies of gradients, %d", r, M, w, bytes,
							want)
					}
				}
			}
		}
	}
}
