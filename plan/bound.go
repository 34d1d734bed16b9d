package plan

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// Bound is a step time that no synchronous plan over these workers can beat, whatever
// its split, schedule, depths, recompute and (of the given ones) micro-batch size, if
// the profile is right.
//
// Write f, b for a layer's forward and backward on a micro-batch of m samples, M for
// their number, W for workers, C = min(W, cores), u for all updates together. A plan
// has one stage or several.
//
// One stage on r workers. Some worker has ceil(M/r) micro-batches and runs every layer
// of each: step >= ceil(M/r) sum(f+b) + u, and r > 1 adds an all-reduce, none of which
// starts before the last backward on some worker has ended. The cores do M sum(f+b) +
// r u of work: step >= that / min(r, C).
//
// S >= 2 stages, one worker each. Stage i, of layers a..z, works M times on f+b of its
// layers. It cannot begin before a first micro-batch has gone forward through the
// layers before a and over i transfers, and after its last backward that
// micro-batch's gradient goes back through the same. Both lie in the step, so
//
//	step >= sum_{k<a}(f_k+b_k) + 2 i t + M sum_{a..z}(f_k+b_k)
//
// with t the least transfer over any cut. The right side depends on a, z and i alone,
// so the least over all splits of its maximum over stages is found exactly by the
// recursion of Pipeline. And step >= (M sum(f+b) + u) / C.
//
// Recompute and deeper warm-up only add work. The bound is the least over r <= W, S <= W
// and the sizes m. On layers that form a DAG, "before a" is before in the fixed
// topological order only if every layer lies on a path to those behind it; the sum is
// then over the longest chain of ancestors.
func Bound(p *profile.Profile, c *cluster.Cluster, workers, batch int, sizes []int) float64 {
	least := math.Inf(1)
	for _, m := range sizes {
		if batch%m != 0 {
			continue
		}
		costs, _, err := p.At(c.Devices[0], m)
		if err != nil {
			continue
		}
		M := batch / m
		work, update := 0.0, 0.0
		for k, cost := range costs {
			work += cost.ForwardS + cost.BackwardS
			update += p.Layers[k].UpdateS
		}
		cores := workers
		if c.Cores > 0 {
			cores = min(cores, c.Cores)
		}
		for r := 1; r <= min(workers, M); r++ {
			one := float64((M+r-1)/r)*work + update + allReduce(p, c, r)
			least = min(least, max(one, (float64(M)*work+float64(r)*update)/float64(min(r, cores))))
		}
		for S := 2; S <= min(workers, len(costs)); S++ {
			chain := chainBound(p, c, costs, S, M)
			least = min(least, max(chain, (float64(M)*work+update)/float64(min(S, cores))))
		}
	}
	return least
}

func allReduce(p *profile.Profile, c *cluster.Cluster, r int) float64 {
	if r == 1 {
		return 0
	}
	bytes := int64(0)
	for _, l := range p.Layers {
		bytes += l.ParameterBytes
	}
	devices := make([]int, r)
	for i := range devices {
		devices[i] = i
	}
	return c.AllReduceS(devices, bytes)
}

// chainBound is the second bound's first part, the least over splits into S stages.
func chainBound(p *profile.Profile, c *cluster.Cluster, costs []profile.Cost, S, M int) float64 {
	n := len(costs)
	before, sum := ancestry(p, costs), make([]float64, n+1)
	transfer := math.Inf(1)
	for k := range n {
		sum[k+1] = sum[k] + costs[k].ForwardS + costs[k].BackwardS
		if k > 0 {
			transfer = min(transfer, c.TransferS(0, 1, p.CutBytes(costs, k-1)))
		}
	}
	least := make([]float64, n+1)
	for j := range least {
		least[j] = math.Inf(1)
	}
	least[0] = 0
	for i := range S {
		next := slices.Repeat([]float64{math.Inf(1)}, n+1)
		for j := i + 1; j <= n; j++ {
			for k := i; k < j; k++ {
				v := before[k] + 2*float64(i)*transfer + float64(M)*(sum[j]-sum[k])
				next[j] = min(next[j], max(least[k], v))
			}
		}
		least = next
	}
	return least[n]
}

// ancestry is, for each layer, the longest chain of forward and backward times among the
// layers that it reads from, directly or not.
func ancestry(p *profile.Profile, costs []profile.Cost) []float64 {
	longest := make([]float64, len(costs))
	for k, layer := range p.Layers {
		for _, from := range layer.From {
			if from >= 0 {
				longest[k] = max(longest[k], longest[from]+costs[from].ForwardS+costs[from].BackwardS)
			}
		}
	}
	return longest
}
