// Package split cuts a chain of layers into stages on one device each.
//
// Input: a profile, a cluster, and the number of stages with the micro-batches that each has in flight. Output: the
// plan whose slowest stage or transfer is fastest (Pipeline), or the whole model on every device (DataParallel).
// Errors: more stages than layers or devices, and a plan.MemoryError if nothing fits.
package split

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim/memory"
)

// Limits holds the given numbers of a split: its stages, its micro-batches, and what its memory depends on.
type Limits struct {
	Stages       int
	MicroBatch   int // samples
	MicroBatches int
	Depths       []int            // K_i by stage, on which memory depends; nil: min(Stages-i, MicroBatches)
	Recompute    []plan.Recompute // by stage; nil: nothing is recomputed
}

func (l Limits) depth(i int) int64 {
	if l.Depths != nil {
		return int64(min(l.Depths[i], l.MicroBatches))
	}
	return int64(min(l.Stages-i, l.MicroBatches))
}

func (l Limits) again(i int) plan.Recompute {
	if l.Recompute == nil {
		return plan.KeepAll
	}
	return l.Recompute[i]
}

// Pipeline splits the layers into a given number of stages so that the slowest stage or transfer takes the least time.
// Stage i is on device i. Times are for one micro-batch. The time of a stage is that of its layers' forwards and
// backwards, and of another forward if it recomputes. The time of a transfer is that of the activations and gradients
// that cross a cut. Splits with a stage that exceeds its device's memory are left out.
//
// The result is exact. Let best(i, j) be the least bottleneck of the first j layers on stages 0..i-1. It is the minimum
// over k < j of max(best(i-1, k), the time of stage i-1 with layers k..j-1, the time of the cut before k), because a
// stage's cost depends only on its layers and its number.
func Pipeline(p *profile.Profile, c *cluster.Cluster, l Limits) (*plan.Plan, error) {
	s, err := newSplitter(p, c, l)
	if err != nil {
		return nil, err
	}
	cuts, bottleneck := s.best(func(i, from, to int) float64 {
		if limit := c.MemoryBytes(i); limit > 0 && s.memory(i, from, to) > limit {
			return math.Inf(1)
		}
		return max(s.time(i, from, to), s.transfer(i, from))
	})
	if math.IsInf(bottleneck, 1) {
		cuts, least := s.best(func(i, from, to int) float64 { return float64(s.memory(i, from, to)) })
		var stages []plan.Held
		for i, st := range s.plan(cuts).Stages {
			stages = append(stages, plan.Held{First: p.Layers[st.FirstLayer].Name, Last: p.Layers[st.LastLayer].Name,
				Devices: st.Devices, Bytes: s.memory(i, st.FirstLayer, st.LastLayer+1)})
		}
		return nil, plan.Refusal("pipeline", "weights, gradients, optimizer and activations", int64(least),
			c.MemoryBytes, stages)
	}
	out := s.plan(cuts)
	out.Planner = "pipeline"
	out.Objective = plan.Objective{Name: "slowest stage or transfer for one micro-batch", Value: bottleneck, Unit: "s"}
	return out, nil
}

// DataParallel puts the whole model on each of n devices, which take micro-batches in turn. On one device it is
// plain training.
func DataParallel(p *profile.Profile, c *cluster.Cluster, microBatch, microBatches, n int) (*plan.Plan, error) {
	if n < 1 || n > len(c.Devices) {
		return nil, fmt.Errorf("plan: %d workers; cluster %s has %d devices", n, c.Name, len(c.Devices))
	}
	if _, _, err := p.At(c.Devices[0], microBatch); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	st := plan.Stage{LastLayer: len(p.Layers) - 1, Warmup: 1}
	for d := range n {
		st.Devices = append(st.Devices, d)
	}
	return &plan.Plan{
		Version: plan.Version, Model: p.Model, ModelID: p.ModelID, Cluster: c.Name, Stages: []plan.Stage{st},
		Replication: "round_robin",
		MicroBatch:  microBatch, MicroBatches: microBatches, Schedule: "dp", Weights: "sync", Planner: "dp",
	}, nil
}

// splitter holds prefix sums over the layers.
type splitter struct {
	p                 *profile.Profile
	c                 *cluster.Cluster
	l                 Limits
	forward, backward [][]float64 // by stage: prefix sums over layers, in seconds
	held              []*memory.Sums
}

func newSplitter(p *profile.Profile, c *cluster.Cluster, l Limits) (*splitter, error) {
	n := len(p.Layers)
	switch {
	case l.Stages < 1 || l.Stages > n:
		return nil, fmt.Errorf("plan: %d stages; %s has %d layers, so give 1 to %d", l.Stages, p.Model, n, n)
	case l.Stages > len(c.Devices):
		return nil, fmt.Errorf("plan: %d stages; cluster %s has %d devices", l.Stages, c.Name, len(c.Devices))
	case l.MicroBatch < 1 || l.MicroBatches < 1:
		return nil, fmt.Errorf("plan: %d micro-batches of %d samples; both must be 1 at least", l.MicroBatches,
			l.MicroBatch)
	case l.Recompute != nil && len(l.Recompute) != l.Stages, l.Depths != nil && len(l.Depths) != l.Stages:
		return nil, fmt.Errorf("plan: %d recompute settings and %d depths for %d stages", len(l.Recompute),
			len(l.Depths), l.Stages)
	}
	s := &splitter{p: p, c: c, l: l}
	for i := range l.Stages {
		costs, _, err := p.At(c.Devices[i], l.MicroBatch)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		f, b := make([]float64, n+1), make([]float64, n+1)
		for k := range costs {
			f[k+1], b[k+1] = f[k]+costs[k].ForwardS, b[k]+costs[k].BackwardS
		}
		s.forward, s.backward, s.held = append(s.forward, f), append(s.backward, b), append(s.held,
			memory.SumsOf(p, costs))
	}
	return s, nil
}

// time returns the seconds that stage i with layers from..to-1 takes for one micro-batch.
func (s *splitter) time(i, from, to int) float64 {
	t := s.forward[i][to] - s.forward[i][from] + s.backward[i][to] - s.backward[i][from]
	if s.l.again(i).Again() {
		t += s.forward[i][to] - s.forward[i][from]
	}
	return t
}

// transfer returns the seconds to send one micro-batch's activations to stage i and its gradients back.
func (s *splitter) transfer(i, from int) float64 {
	if i == 0 {
		return 0
	}
	return 2 * s.c.TransferS(i-1, i, s.held[i].Cut[from])
}

// memory returns the bytes that stage i holds with layers from..to-1.
func (s *splitter) memory(i, from, to int) int64 {
	return s.held[i].Held(from, to, int(s.l.depth(i)), s.l.again(i), memory.Replicas{})
}

// best returns the split with the least maximum of `cost` over stages, and that maximum.
func (s *splitter) best(cost func(i, from, to int) float64) (cuts []int, value float64) {
	n, S := len(s.p.Layers), s.l.Stages
	least := make([][]float64, S+1)
	from := make([][]int, S+1)
	for i := range least {
		least[i], from[i] = make([]float64, n+1), make([]int, n+1)
		for j := range least[i] {
			least[i][j] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for i := 1; i <= S; i++ {
		for j := i; j <= n-(S-i); j++ {
			for k := i - 1; k < j; k++ {
				if least[i-1][k] >= least[i][j] {
					continue
				}
				if v := max(least[i-1][k], cost(i-1, k, j)); v < least[i][j] {
					least[i][j], from[i][j] = v, k
				}
			}
		}
	}
	if math.IsInf(least[S][n], 1) {
		return nil, math.Inf(1)
	}
	cuts = make([]int, S-1)
	for i, j := S, n; i > 1; i-- {
		j = from[i][j]
		cuts[i-2] = j
	}
	return cuts, least[S][n]
}

func (s *splitter) plan(cuts []int) *plan.Plan {
	out := &plan.Plan{
		Version: plan.Version, Model: s.p.Model, ModelID: s.p.ModelID, Cluster: s.c.Name, Replication: "round_robin",
		MicroBatch: s.l.MicroBatch, MicroBatches: s.l.MicroBatches, Schedule: "1f1b", Weights: "sync",
	}
	first := 0
	for i := range s.l.Stages {
		last := len(s.p.Layers) - 1
		if i < len(cuts) {
			last = cuts[i] - 1
		}
		out.Stages = append(out.Stages, plan.Stage{
			FirstLayer: first, LastLayer: last, Devices: []int{i}, Recompute: s.l.again(i), Warmup: int(s.l.depth(i)),
		})
		first = last + 1
	}
	return out
}
