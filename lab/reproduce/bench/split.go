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

// BestSplit is the cut for given replica counts whose slowest stage or transfer is fastest, by PipeDream §3.1. A
// stage of m replicas takes max(compute, its all-reduce) / m of a minibatch, a boundary 2 a / B. Devices are taken
// in order, so that a stage may span servers. Minibatches go round the replicas, and those that leave a server share
// its port where it has one: with each other in the search, and in SlowestS with those of all other boundaries too.
// It is a search over the cuts of these counts, no planner.
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
	out.SlowestS = max(out.SlowestS, ports(out.Last))
	return out, nil
}

// Slowest is the time of a minibatch on stages that end at these layers, as BestSplit has it.
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

// crossing is the time, per byte of a minibatch's activations, for which it takes the busiest link between two
// stages. As many bytes of gradients come back, and both ways add up, as in 2 a / B. The link is that of a device or
// the port of its server. ports is the time of each port, which messages between other stages want too.
func (b *Bench) crossing(near, far []int) (busiest float64, ports map[[2]int]float64) {
	c := b.OneWay().C
	type end struct{ device, level int }
	devices := map[end]float64{}
	ports = map[[2]int]float64{}
	rounds := len(near) * len(far) // after which all begins anew
	for i := range rounds {
		from, to := near[i%len(near)], far[i%len(far)]
		level := c.LevelOf(from, to)
		for _, way := range [][2]int{{from, to}, {to, from}} {
			_, takes := c.Transfer(way[0], way[1], 1)
			takes /= float64(rounds)
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

// Ones is a straight pipeline's replica counts.
func Ones(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = 1
	}
	return r
}
