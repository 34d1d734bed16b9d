package contest

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/sim/memory"
)

// Uniform holds costs without a model: every worker's share of the model takes the same time and memory. Sizes are in
// activations; one micro-batch leaves one activation on a worker.
type Uniform struct {
	Workers                   int
	ForwardS, InputS, WeightS float64 // of a worker's share, for one micro-batch
	UpdateS, TransferS        float64
	AllReduceS                float64 // time to sum a worker's share of the gradients, over two replicas or more
	NormS                     float64 // time to pool the gradient norm
	Parameters                float64 // size of a worker's share; its gradients have the same size
	// Streaming says that devices send a message while they compute it, as BaPipe's boards do. TransferS is then how
	// long a message occupies the link, counted from the start of its computation.
	Streaming bool
}

// Activation is the number of bytes that represents one activation in Uniform costs.
const Activation = 1 << 20

// FormatActivations formats bytes of Uniform costs as activations.
func FormatActivations(n int64) string {
	return fmt.Sprintf("%.4g activations", float64(n)/Activation)
}

// Stages implements Rules.Stages. The model is divided evenly by the number of stages. So with more stages than
// workers, a stage is smaller than a worker's share. A family that does not divide the model has one stage with the
// whole model.
func (u Uniform) Stages(f family.Family, placement [][]int) (sim.Costs, [][]int, error) {
	share := float64(u.Workers) / float64(len(placement))
	c := sim.Costs{Transfer: func(int, int, int64) (float64, float64) { return u.TransferS, 0 }}
	if u.Streaming {
		c = sim.Streaming(c, u.TransferS)
	}
	parameters := int64(math.Round(share * u.Parameters * Activation))
	for _, on := range placement {
		k := sim.StageCost{
			ForwardS: share * u.ForwardS, BackwardS: share * (u.InputS + u.WeightS), InputS: share * u.InputS,
			WeightS:     share * u.WeightS,
			UpdateTimes: profile.UpdateTimes{UpdateS: share * u.UpdateS}, NormS: u.NormS,
			Held: memory.Held{
				SavedBytes: int64(math.Round(share * Activation)), PendingBytes: int64(math.Round(share * Activation)),
				FixedBytes: parameters, WeightBytes: parameters, ParameterBytes: parameters,
			},
		}
		if len(on) > 1 {
			k.AllReduceS = share * u.AllReduceS
		}
		c.Stages = append(c.Stages, []sim.StageCost{k})
	}
	return c, nil, nil
}

// ProfileStages divides a profile's layers into stages for Rules.Stages, so that the slowest stage is as fast as
// possible. MicroBatch is the number of samples of a micro-batch.
type ProfileStages struct {
	Profile    *profile.Profile
	Cluster    *cluster.Cluster
	MicroBatch int
}

// Stages implements Rules.Stages.
func (s ProfileStages) Stages(f family.Family, placement [][]int) (sim.Costs, [][]int, error) {
	if n := len(s.Profile.Layers); len(placement) > n {
		return sim.Costs{}, nil, fmt.Errorf("it has %d stages; %s has %d layers", len(placement), s.Profile.Model, n)
	}
	costs, _, err := s.Profile.At(s.Cluster.Devices[0], s.MicroBatch)
	if err != nil {
		return sim.Costs{}, nil, fmt.Errorf("tune: %w", err)
	}
	times := make([]float64, len(costs))
	for l := range costs {
		times[l] = costs[l].ForwardS + costs[l].BackwardS
	}
	pl := &plan.Plan{
		Version: plan.Version, Model: s.Profile.Model, Replication: string(schedule.RoundRobin),
		MicroBatch: s.MicroBatch, MicroBatches: 1, Schedule: f.Name, Weights: string(schedule.Sync),
	}
	cuts := evenCuts(times, len(placement))
	for i, on := range placement {
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: cuts[i], LastLayer: cuts[i+1] - 1, Devices: slices.Clone(on)})
	}
	c, err := sim.CostsOf(s.Profile, s.Cluster, pl)
	return c, pl.TiedStages(s.Profile.TiedLayers()), err
}

// evenCuts divides times into non-empty runs. It makes the largest sum of a run as small as possible. Run i is
// times[cuts[i]:cuts[i+1]]. In the code, least[k][j] is the smallest possible largest sum if the first j times are
// divided into k runs.
func evenCuts(times []float64, runs int) []int {
	n := len(times)
	before := make([]float64, n+1)
	for i, x := range times {
		before[i+1] = before[i] + x
	}
	least := make([][]float64, runs+1)
	from := make([][]int, runs+1)
	for k := range least {
		least[k], from[k] = make([]float64, n+1), make([]int, n+1)
		for j := range least[k] {
			least[k][j] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for k := 1; k <= runs; k++ {
		for j := k; j <= n-(runs-k); j++ {
			for i := j - 1; i >= k-1; i-- {
				last := before[j] - before[i]
				if last >= least[k][j] {
					break // longer last runs take longer
				}
				if worst := max(least[k-1][i], last); worst < least[k][j] {
					least[k][j], from[k][j] = worst, i
				}
			}
		}
	}
	cuts := make([]int, runs+1)
	cuts[runs] = n
	for k := runs; k > 0; k-- {
		cuts[k-1] = from[k][cuts[k]]
	}
	return cuts
}
