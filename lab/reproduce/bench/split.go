package bench

import (
	"math"

	"github.com/millrace-ml/millrace/profile"
)

// Partition is a division of a model for PipeDream's steady state: each stage is a run of layers with its replicas.
type Partition struct {
	Last     []int // last layer of each stage
	Replicas []int
	SlowestS float64 // seconds between the ends of two successive minibatches
}

// BestSplit returns the cut that makes the slowest stage or transfer as fast as possible, by PipeDream §3.1. The
// replica counts are given, so it is not a planner.
//
// A stage of m replicas takes max(compute, its all-reduce) / m for a minibatch. A boundary takes 2 a / B for `a` bytes
// of activations at bandwidth B. Devices are taken in order, so a stage may span servers. Minibatches go to the
// replicas in turn. Messages that leave a server share its port, if it has one. The search counts only one boundary's
// minibatches at a port, but SlowestS counts the minibatches of all boundaries.
func (b *Bench) BestSplit(replicas []int, size int) (Partition, error) {
	p, costs, err := b.Costs(size)
	if err != nil {
		return Partition{}, err
	}
	n, S := len(costs), len(replicas)
	stage, boundary, ports := b.stageTimes(p, costs, replicas)
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
					break // the loss by itself is not a stage: the papers' profiles leave it out
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
	out.SlowestS = max(out.SlowestS, ports(out.Last))
	return out, nil
}

// Slowest returns how many seconds a minibatch takes on the slowest of the stages that end at these layers. It computes
// this time as BestSplit does.
func (b *Bench) Slowest(last, replicas []int, size int) (float64, error) {
	p, costs, err := b.Costs(size)
	if err != nil {
		return 0, err
	}
	stage, boundary, ports := b.stageTimes(p, costs, replicas)
	slowest, first := ports(last), 0
	for s, end := range last {
		slowest = max(slowest, stage(s, first, end))
		if s > 0 {
			slowest = max(slowest, boundary(s, first-1))
		}
		first = end + 1
	}
	return slowest, nil
}

func (b *Bench) stageTimes(p *profile.Profile, costs []profile.Cost, replicas []int) (stage func(s, i, j int) float64,
	boundary func(s, cut int) float64, ports func(last []int) float64) {
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
	perByte, busy := make([]float64, len(replicas)), make([]map[[2]int]float64, len(replicas))
	for i := range replicas[1:] {
		perByte[i+1], busy[i+1] = b.crossing(devices[i], devices[i+1])
	}
	boundary = func(s, l int) float64 { return perByte[s] * float64(cut[l]) }
	ports = func(last []int) (busiest float64) {
		sum := map[[2]int]float64{}
		for s, of := range busy {
			for port, takes := range of {
				sum[port] += takes * float64(cut[last[s-1]])
				busiest = max(busiest, sum[port])
			}
		}
		return busiest
	}
	return stage, boundary, ports
}

// crossing returns how long the busiest link between two stages takes for each byte of a minibatch's activations. This
// time includes that of the gradients: as many bytes of them come back, and the times of both directions add up. A link
// is a device's or its server's port. `ports` has the time of each server's port, which messages between other stages
// use too.
func (b *Bench) crossing(near, far []int) (busiest float64, ports map[[2]int]float64) {
	c := b.OneWay().C
	type end struct{ device, level int }
	devices := map[end]float64{}
	ports = map[[2]int]float64{}
	rounds := len(near) * len(far) // after this many minibatches the pairs of devices repeat
	for i := range rounds {
		from, to := near[i%len(near)], far[i%len(far)]
		level := c.LevelOf(from, to)
		for _, way := range [][2]int{{from, to}, {to, from}} {
			takes := c.ByteS(way[0], way[1]) / float64(rounds)
			for _, e := range []end{{from, level}, {to, level}} {
				devices[e] += takes
				busiest = max(busiest, devices[e])
			}
			for _, port := range c.Links(way[0], way[1]) {
				ports[port] += takes
				busiest = max(busiest, ports[port])
			}
		}
	}
	return busiest, ports
}

// Ones returns a straight pipeline's replica counts.
func Ones(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = 1
	}
	return r
}
