package bench

import (
	"math"

	"github.com/millrace-ml/millrace/profile"
)

// Partition is a way to cut a model for PipeDream's steady state: each stage a run of layers
// with its replicas.
type Partition struct {
	Last     []int // layer of each stage
	Replicas []int
	SlowestS float64 // seconds for each minibatch that leaves the pipeline
}

// BestSplit is the cut for given replica counts whose slowest stage or transfer is fastest,
// by PipeDream §3.1: a stage of m replicas takes max(compute, its all-reduce) / m of a
// minibatch, a boundary 2 a / B. Devices are taken in order, so that a stage may span
// servers. It is a search over the cuts of these counts, no planner.
func (b *Bench) BestSplit(replicas []int, size int) (Partition, error) {
	p, costs, err := b.Costs(size)
	if err != nil {
		return Partition{}, err
	}
	n, S := len(costs), len(replicas)
	stage, boundary := b.stageTimes(p, costs, replicas)
	best := make([][]float64, S)
	from := make([][]int, S)
	for s := range S {
		best[s], from[s] = make([]float64, n), make([]int, n)
		for j := range n {
			best[s][j] = math.Inf(1)
			if s == 0 {
				best[s][j] = stage(0, 0, j)
				continue
			}
			for i := s - 1; i < j; i++ {
				if i == n-2 && b.Given == nil {
					break // the loss alone is no stage: the papers' profiles leave it out
				}
				if t := max(best[s-1][i], stage(s, i+1, j), boundary(s, i)); t < best[s][j] {
					best[s][j], from[s][j] = t, i
				}
			}
		}
	}
	out := Partition{Replicas: replicas, SlowestS: best[S-1][n-1]}
	for s, j := S-1, n-1; s >= 0; s, j = s-1, from[s][j] {
		out.Last = append([]int{j}, out.Last...)
	}
	return out, nil
}

func (b *Bench) stageTimes(p *profile.Profile, costs []profile.Cost, replicas []int) (stage func(s, i, j int) float64,
	boundary func(s, cut int) float64) {
	compute, weights := make([]float64, len(costs)+1), make([]int64, len(costs)+1)
	for l, c := range costs {
		compute[l+1] = compute[l] + c.ForwardS + c.BackwardS
		weights[l+1] = weights[l] + p.Layers[l].ParameterBytes
	}
	cut := make([]int64, len(costs))
	for l := range cut {
		cut[l] = p.CutBytes(costs, l)
	}
	var devices [][]int
	at := 0
	for _, r := range replicas {
		var d []int
		for range r {
			d = append(d, at)
			at++
		}
		devices = append(devices, d)
	}
	stage = func(s, i, j int) float64 {
		t := compute[j+1] - compute[i]
		if len(devices[s]) > 1 {
			t = max(t, b.AllReduceS(devices[s], weights[j+1]-weights[i]))
		}
		return t / float64(len(devices[s]))
	}
	boundary = func(s, l int) float64 {
		near, far := devices[s-1], devices[s]
		level := b.C.Levels[b.C.LevelOf(near[len(near)-1], far[0])]
		return 2 * float64(cut[l]) / level.BandwidthBytesPerSecond / float64(min(len(near), len(far)))
	}
	return stage, boundary
}

// Ones is a straight pipeline's replica counts.
func Ones(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = 1
	}
	return r
}
