// Package bound proves step times that no synchronous plan can beat.
//
// Input: a profile, a cluster and the kind of plans. Output: Step, in seconds. Each proof is in the comment above
// its code. The package returns no errors: for cases that are too large to search, or only partly profiled, the
// bound is weaker.
package bound

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// Kind says which plans a bound covers.
type Kind struct {
	Workers int
	Batch   int   // samples of a step
	Sizes   []int // micro-batch sizes that a plan may have
	// Loose also covers plans for which less can be proven: plans that split layers across stages, use another layer
	// order than the profile's, put several stages on a device, or overlap gradient sums with computation.
	Loose bool
	// Halves covers plans with split backwards. In such plans other stages wait only for the first half of a backward
	// (the input gradient).
	Halves bool
}

// Same reports whether k and `as` cover the same plans.
func (k Kind) Same(as Kind) bool {
	return k.Workers == as.Workers && k.Batch == as.Batch && k.Loose == as.Loose && k.Halves == as.Halves &&
		slices.Equal(k.Sizes, as.Sizes)
}

// Step returns a lower bound, in seconds, on the step time of any synchronous plan over these devices. It covers every
// split, replication, placement, schedule, depth and recompute. It holds if the profile is right and no transfer or
// all-reduce is faster than the fastest that the cluster has.
//
// Notation: m is the number of samples in a micro-batch and M the number of micro-batches. f_k(q) and b_k(q) are the
// times of layer k's forward and backward on q rows, on the device type that is fastest for it, and c = f + b. All
// micro-batches of a plan have one size, so the bound is the minimum over sizes. Replicas either take micro-batches in
// turn or each take a slice of every micro-batch (split), so the bound is the minimum over both.
//
// Work. If replicas take micro-batches in turn, layer k costs M c_k(m) in all. If r devices split them, every device is
// counted with ceil(m/r) rows of each micro-batch, so layer k costs M r c_k(ceil(m/r)). Take the minimum over r for
// each layer, sum over layers, and add every layer's update once. A plan on C cores or devices takes at least this sum
// divided by C. If device types differ, weight each type's devices by l >= 0, with the sum of l over devices = 1. Then
// step = sum_d l_d step >= sum_d l_d busy_d >= sum_k min over types of l c_k, for any l. The code uses l proportional
// to 1/(whole model's time on the type).
//
// Chains. Let a stage of layers a..z be on r devices, each of which holds one stage only. At least one of these devices
// computes ceil(M/r) micro-batches in turn, each in c(m) or, if split, M slices, each in c(ceil(m/r)). Call this time
// work(a, z, r). The device's next step begins after its last backward, the sum of its gradients if r > 1, and its
// update, so
//
//	step >= work(a, z, r) + sum(a..z, r) + update(a..z)
//
// If the workers' own cores do the summing, sum is the all-reduce's full time. Otherwise the all-reduce may begin
// during the last backward, so sum is max(0, the all-reduce's time - c(a..z)).
//
// Stage 0 begins a step after its update in the previous step. That update comes after the last gradient has come back
// through all stages in between. In every step, one micro-batch of the device goes forward through those stages first,
// and one goes backward through them last. Those stages hold all layers before a, on at most W-r devices. Let A(a) be
// the sum of c over these layers, on m rows or, if split, each on ceil(m/q) rows with the q up to W-r for which c is
// least. (A measured c may grow as the rows get fewer.) Then
//
//	step >= A(a) + 2 t(a) + work(a, z, r)   for a > 0
//
// t(a) is the time that the data of the cut before a (divided by W if split) takes over the fastest link. With split
// backwards only the first of the two inequalities is proven. reduce.go bounds the sum over r devices. Warm-up only
// adds work. Recompute adds work too, except where a recomputed layer was measured to be faster; cheapest handles that
// case. serverBound decides which stages fit within a step and what crosses between servers. fillBound follows a
// micro-batch stage by stage.
//
// Only the work bound applies to a Loose kind, or if layers times the square of the devices exceeds maxServerStates.
// Also for boards that stream their results only the work bound applies, because the next stage can start on the first
// result before the last one is there.
func Step(p *profile.Profile, c *cluster.Cluster, kind Kind) float64 { return Prove(p, c, kind).StepS }

// bounder computes the bound for one micro-batch size and one way to replicate.
type bounder struct {
	p     *profile.Profile
	c     *cluster.Cluster
	kind  Kind
	m, M  int
	split bool
	types []string
	// `costs` and `measured` have the layers' costs by device type and by rows per replica. An entry is nil if the
	// profile has no costs for so few rows.
	costs, measured map[string]map[int][]profile.Cost // costs: limited by cheapest; measured: as measured
	// counts lists the numbers r of replicas for which a replica has fewer rows than with r-1 replicas. Any other r has
	// the same rows per replica as a smaller r, and more work in total.
	counts []int
	groups []*serverBound // by level
	proof  Proof          // the best one so far
	effort *effort        // budget left for refining the proof
}

func newBounder(p *profile.Profile, c *cluster.Cluster, kind Kind, m int, split bool) *bounder {
	c = c.AtBest()
	b := &bounder{p: p, c: c, kind: kind, m: m, M: kind.Batch / m, split: split, effort: endless(),
		costs: map[string]map[int][]profile.Cost{}, measured: map[string]map[int][]profile.Cost{}}
	for r := 1; r <= kind.Workers; r++ {
		if r == 1 || b.rows(r) < b.rows(r-1) {
			b.counts = append(b.counts, r)
		}
	}
	for _, t := range c.Devices {
		if b.costs[t] != nil {
			continue
		}
		b.types = append(b.types, t)
		b.costs[t], b.measured[t] = map[int][]profile.Cost{}, map[int][]profile.Cost{}
		for _, r := range b.counts {
			if costs, _, err := p.At(t, b.rows(r)); err == nil {
				b.costs[t][b.rows(r)], b.measured[t][b.rows(r)] = cheapest(costs, b.kind.Halves), costs
			}
		}
	}
	if !slices.ContainsFunc(b.types, func(t string) bool { return len(b.costs[t]) > 0 }) {
		return nil
	}
	return b
}

// at returns the costs of the layers on a device type, for each of r replicas.
func (b *bounder) at(device string, r int) []profile.Cost { return b.costs[device][b.rows(r)] }

// cheapest lowers the costs of each layer so that two sums are at most what they are with recompute. One sum is the
// time of the forward and the backward. The other is the time of the forward and the first half of the backward. This
// matters if recompute was measured to be faster, for instance because a forward that keeps nothing finds its memory in
// the caches. Bounds use only these sums, never one of their parts. With split backwards, a backward counts as the
// whole one or as the two measured halves, whichever takes less. On a board, a forward and a backward together are
// assumed to take at most their time side by side.
func cheapest(costs []profile.Cost, halves bool) []profile.Cost {
	out := slices.Clone(costs)
	for k := range out {
		c := &out[k]
		forward, backward := c.ForwardS, c.BackwardS
		bare, again := c.Again()
		if halves && c.BackwardInputS != nil && c.BackwardWeightS != nil {
			backward = min(backward, *c.BackwardInputS+*c.BackwardWeightS)
			c.BackwardS, again = backward, min(again, backward+max(0, again-c.BackwardS))
		}
		if bare+again < forward+backward {
			c.ForwardS = min(forward, bare)
			c.BackwardS = max(0, bare+again-c.ForwardS) // below 0 only because of rounding
		}
		if c.Board != nil {
			c.BackwardS = max(0, min(c.BackwardS, c.Board.PairedS-c.ForwardS))
		}
		// Recompute adds its extra time to the first half of the backward.
		if half := bare + max(0, again-backward); half < forward && c.BackwardInputS != nil {
			c.BackwardInputS = new(max(0, *c.BackwardInputS+half-c.ForwardS))
		}
	}
	return out
}

// rows returns the largest number of rows of a micro-batch that one of r replicas has.
func (b *bounder) rows(r int) int {
	if b.split {
		return (b.m + r - 1) / r
	}
	return b.m
}

// streams reports whether any device is a board.
func (b *bounder) streams() bool {
	for _, t := range b.types {
		if b.c.DeviceTypes[t].FPGA != nil {
			return true
		}
	}
	return false
}

// work returns the first bound in the comment at Step, in seconds.
func (b *bounder) work() float64 {
	cores := float64(min(b.kind.Workers, b.c.AllCores()))
	speed := map[string]float64{}
	total := 0.0
	for _, t := range b.types {
		for k := range b.p.Layers {
			speed[t] += b.layer(t, k)
		}
	}
	for _, t := range b.c.Devices {
		if speed[t] > 0 {
			total += 1 / speed[t]
		}
	}
	plain, weighed, update := 0.0, 0.0, 0.0
	for k := range b.p.Layers {
		update += b.updateS(k)
		least, lightest := math.Inf(1), math.Inf(1)
		for _, t := range b.types {
			c := b.layer(t, k)
			least = min(least, c)
			if speed[t] > 0 {
				lightest = min(lightest, c/speed[t]/total)
			} else {
				lightest = 0
			}
		}
		plain += least
		weighed += lightest
	}
	bound := (plain + update) / cores
	if len(b.c.Devices) == b.kind.Workers && total > 0 {
		bound = max(bound, weighed)
	}
	return bound
}

// updateS returns the time in seconds of a layer's update on the device type that is fastest for it.
func (b *bounder) updateS(k int) float64 {
	least := math.Inf(1)
	for _, t := range b.types {
		least = min(least, b.p.Layers[k].UpdatesOn(t).UpdateS)
	}
	return least
}

// layer returns how long all work on a layer takes in a step, on devices of one type.
func (b *bounder) layer(t string, k int) float64 {
	least := math.Inf(1)
	for _, r := range b.counts {
		if costs := b.at(t, r); costs != nil {
			times := 1.0
			if b.split {
				times = float64(r)
			}
			least = min(least, float64(b.M)*times*(costs[k].ForwardS+costs[k].BackwardS))
		}
	}
	return least
}

// transfers returns, for each layer, the least time in seconds of a transfer over the cut before it.
func (b *bounder) transfers() []float64 {
	out := make([]float64, len(b.p.Layers))
	if len(b.c.Devices) < 2 {
		return out
	}
	for k := 1; k < len(out); k++ {
		bytes := b.leastCut(k)
		if b.split {
			bytes /= int64(b.kind.Workers)
		}
		least := math.Inf(1)
		b.links(func(latency, bandwidth float64) {
			least = min(least, latency+float64(bytes)/bandwidth)
		})
		if !math.IsInf(least, 1) {
			out[k] = least
		}
	}
	return out
}

// leastCut returns a lower bound on the bytes of a whole micro-batch that cross the cut before a layer in each
// direction. It returns 0 if they are unknown. It counts the bytes of gradients: if the first layers are frozen, these
// are fewer than the bytes of activations.
func (b *bounder) leastCut(layer int) int64 {
	least := int64(-1)
	for _, t := range b.types {
		if costs := b.at(t, 1); costs != nil {
			if bytes := b.p.GradientBytes(costs, layer-1); least < 0 || bytes < least {
				least = bytes
			}
		}
	}
	return max(0, least)
}

// links lists the latency and bandwidth of each level, and of each node on the innermost level.
func (b *bounder) links(yield func(latency, bandwidth float64)) {
	for i, l := range b.c.Levels {
		if l.Size < 2 {
			continue
		}
		yield(l.LatencyS, l.BandwidthBytesPerSecond)
		if i > 0 {
			continue
		}
		for _, n := range b.c.Nodes {
			bandwidth, latency := l.BandwidthBytesPerSecond, l.LatencyS
			if n.BandwidthBytesPerSecond > 0 {
				bandwidth = n.BandwidthBytesPerSecond
			}
			if n.LatencyS > 0 {
				latency = n.LatencyS
			}
			yield(latency, bandwidth)
		}
	}
}
