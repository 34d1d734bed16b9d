// Package bound proves step times that no synchronous plan can beat.
//
// In: a profile, a cluster, and which plans are meant. Out: Step, in seconds. The proofs stand beside the
// code. Nothing is refused: of what is too large to search, or less is known of, less is proven.
package bound

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// Kind is the plans that a bound is for.
type Kind struct {
	Workers int
	Batch   int   // samples of a step
	Sizes   []int // micro-batches that a plan may have
	// Loose admits plans of which less is proven. Their layers are divided between stages or in another order than the
	// profile's, or they have several stages on a device, or sums beside computations.
	Loose bool
	// Halves is for plans whose backwards are in halves, of which only the first is waited for.
	Halves bool
}

// Same says whether two kinds are of the same plans.
func (k Kind) Same(as Kind) bool {
	return k.Workers == as.Workers && k.Batch == as.Batch && k.Loose == as.Loose && k.Halves == as.Halves &&
		slices.Equal(k.Sizes, as.Sizes)
}

// Step is a lower bound on the step time of any synchronous plan over these devices, in seconds. Split, replicas,
// places, schedule, depths and recompute may be any. It holds if the profile is right and a transfer or an
// all-reduce is no faster than the fastest that the cluster has.
//
// Write m for the samples of a micro-batch, M for their number, f_k(q), b_k(q) for layer k's
// forward and backward on q rows on whichever device type is fastest for it, c = f + b. All
// micro-batches of a plan have one size, so the bound is the least over sizes; and replicas
// either take micro-batches in turn or all split each, so it is the least of both.
//
// Work. In turn, layer k costs M c_k(m) in all. Split over r devices, each has ceil(m/r) rows
// of every micro-batch: M r c_k(ceil(m/r)) for some r. Sum the least over r over layers, and
// every layer's update once: a plan on C cores or devices takes at least that / C. Where types
// differ, weigh the time of each type's devices by l >= 0 with sum of l over devices = 1: then
// step = sum_d l_d step >= sum_d l_d busy_d >= sum_k min over types of l c_k, for any l. l
// proportional to 1/(whole model's time on the type) is used.
//
// Chains. Let a stage of layers a..z be on r devices, each of which holds one stage only. Some
// device of it has (in turn) ceil(M/r) micro-batches of c(m), or (split) M of c(ceil(m/r)):
// work(a, z, r). Its own next step begins after its last backward, the sum of its gradients
// where r > 1, and its update, so
//
//	step >= work(a, z, r) + sum(a..z, r) + update(a..z)
//
// where, unless the workers' own cores do the summing, sum is what is left of it when the last of these
// backwards is over, within which it may have begun: the sum's time less c(a..z), once, or nothing.
//
// And stage 0 begins a step after its update in the step before, which comes after the last
// gradient has come back through all stages between; in every step one micro-batch of
// the device goes forward through them first and one goes back last. They hold all layers before a,
// and are on W-r devices at most, so with A(a) the sum of c over these layers, on m rows or,
// split, on ceil(m/(W-r)),
//
//	step >= A(a) + 2 t(a) + work(a, z, r)   for a > 0
//
// t(a) is the time of what crosses the cut before a (split by W) over the fastest link. With backwards in
// halves only the first of the two is known. The sum over r devices takes what reduce.go says. Recompute and
// warm-up only add work, or what computing again was measured to take is bounded (cheapest). Which stages a
// plan can have within a step, and what goes between servers, is serverBound's; what their way takes stage by
// stage fillBound's.
//
// With more than maxServerStates layers times devices squared only the work is left, and with
// boards that pass on results as they come, of which the next stage can use the first before
// the last is there.
func Step(p *profile.Profile, c *cluster.Cluster, kind Kind) float64 { return Prove(p, c, kind).StepS }

// bounder is the bound for one size of micro-batch and one way to replicate.
type bounder struct {
	p     *profile.Profile
	c     *cluster.Cluster
	kind  Kind
	m, M  int
	split bool
	types []string
	// by device type, and by rows of a replica (nil where the profile does not know so few)
	costs, measured map[string]map[int][]profile.Cost // by cheapest, and as they are
	// counts is the numbers of replicas of which one fewer has more rows: of others that have as many rows
	// one of these does less work.
	counts []int
	groups []*serverBound // by level
	proof  Proof          // so far
	effort *effort        // for refining it
}

func newBounder(p *profile.Profile, c *cluster.Cluster, kind Kind, m int, split bool) *bounder {
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

// at is what the layers cost each of r replicas on a device type.
func (b *bounder) at(device string, r int) []profile.Cost { return b.costs[device][b.rows(r)] }

// cheapest limits what a forward and its backward take together to what they take where the layer is computed again.
// It matters where that was measured to be less: a forward that keeps nothing finds its memory in the caches. With
// halves only the first half of the backward counts. On a board they take no less than at once. Bounds use these
// sums only, not their parts. Where backwards may come in halves, they take no more than a whole one: a profile may
// have measured less.
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
			c.BackwardS = max(0, bare+again-c.ForwardS) // below 0 by rounding only
		}
		if c.Board != nil {
			c.BackwardS = max(0, min(c.BackwardS, c.Board.PairedS-c.ForwardS))
		}
		// What computing again adds to a backward it adds to the first half.
		if half := bare + max(0, again-backward); half < forward && c.BackwardInputS != nil {
			c.BackwardInputS = new(max(0, *c.BackwardInputS+half-c.ForwardS))
		}
	}
	return out
}

// rows that each of r replicas has of a micro-batch.
func (b *bounder) rows(r int) int {
	if b.split {
		return (b.m + r - 1) / r
	}
	return b.m
}

// streams says whether any device is a board.
func (b *bounder) streams() bool {
	for _, t := range b.types {
		if b.c.DeviceTypes[t].FPGA != nil {
			return true
		}
	}
	return false
}

// work is the first of the two bounds.
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

// updateS is what an update of a layer takes on the fastest type for it.
func (b *bounder) updateS(k int) float64 {
	least := math.Inf(1)
	for _, t := range b.types {
		least = min(least, b.p.Layers[k].UpdatesOn(t).UpdateS)
	}
	return least
}

// layer is all the work of a layer in a step on devices of one type.
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

// transfers is the least time that what crosses the cut before each layer takes.
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

// leastCut is the least bytes of a whole micro-batch that cross the cut before a layer each way, 0 where they are
// not known: as many as gradients come back, which are fewer behind a frozen beginning.
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

// links lists the levels' latency and bandwidth, nodes of their own included.
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
