package shape

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule"
)

// links computes the times of messages between stages and of collectives over replicas.
type links struct {
	c       *cluster.Cluster
	s       Shape
	overlap float64
	played  int                  // number of simulated computations
	free    bool                 // messages between stages take no time
	apart   bool                 // messages between stages share no ports
	waiting []int                // what together returned
	known   map[[2]int64]float64 // seconds of an all-reduce, by stage and bytes
	orders  map[order]*schedule.Program
}

// rank returns the first device of the group of a stage and a replica.
func (l *links) rank(stage, replica int) int { return (stage*l.s.Replicas + replica) * l.s.Tensor }

// transfer returns the time of a message between two stages: its latency, and how long it occupies the link.
func (l *links) transfer(from, to int, bytes float64) (latencyS, linkS float64) {
	if l.free {
		return 0, 0
	}
	latencyS, linkS = l.c.Transfer(l.rank(from, 0), l.rank(to, 0), int64(bytes*l.sharing(from, to)))
	if t := l.s.Tensor; t > 1 && !l.s.SequenceParallel { // each device also needs the other devices' parts
		group := make([]int, t)
		for i := range group {
			group[i] = i
		}
		linkS += l.c.CollectiveS(group, bytes*float64(t), cluster.Gather)
	}
	return latencyS, linkS
}

// allReduce returns the time of an all-reduce of this many bytes over the replicas of a stage.
func (l *links) allReduce(stage int, bytes float64) float64 {
	if l.s.Replicas == 1 || bytes == 0 {
		return 0
	}
	key := [2]int64{int64(stage), int64(bytes)}
	if s, ok := l.known[key]; ok {
		return s
	}
	if l.known == nil {
		l.known = map[[2]int64]float64{}
	}
	l.known[key] = l.c.CollectiveS(l.replicas(stage), bytes, cluster.AllReduce)
	return l.known[key]
}

// gather returns the time of an all-gather, or of a reduce-scatter, of this many bytes in total.
func (l *links) gather(stage int, bytes float64) float64 {
	if l.s.Replicas == 1 || bytes == 0 {
		return 0
	}
	return l.c.CollectiveS(l.replicas(stage), bytes, cluster.Gather)
}

// replicas returns, for a stage, the first device of each replica's group.
func (l *links) replicas(stage int) []int {
	devices := make([]int, l.s.Replicas)
	for r := range devices {
		devices[r] = l.rank(stage, r)
	}
	return devices
}

// gradientBytes returns the size of one element of a gradient, in bytes, while it is summed.
func (l *links) gradientBytes() float64 {
	switch {
	case l.s.GradientBytes > 0:
		return float64(l.s.GradientBytes)
	case l.s.Precision == "f16":
		return 2
	}
	return 4
}

// weightBytes returns the size of one element of a weight, in bytes, while it is gathered.
func (l *links) weightBytes() float64 {
	if l.s.WeightBytes > 0 {
		return float64(l.s.WeightBytes)
	}
	return float64(kernels.ElementBytes(l.s.Precision))
}

// sharded returns a unit's times. If replicas shard its weights or gradients, the times include the collectives for
// them. `gather` is the part of the collectives that is not hidden.
func (l *links) sharded(u unit) (forwardS, inputS, gather float64) {
	weights := u.parameters * l.weightBytes()
	scatter := l.gather(0, u.parameters*l.gradientBytes())
	var before, behind float64
	switch l.s.Shard {
	case "zero3":
		before = l.gather(0, weights)
		behind = before + scatter
	case "zero2":
		behind = scatter
	default:
		return u.forward, u.input, 0
	}
	forward, backward := l.beside(u.forward, before), l.beside(u.input+u.weight, behind)
	return u.forward + forward, u.input + backward, forward + backward
}

// beside returns how much longer a computation takes if a collective overlaps it.
func (l *links) beside(computesS, collectiveS float64) float64 {
	return max(computesS, collectiveS) + (1-l.overlap)*min(computesS, collectiveS) - computesS
}

// gradients returns how long a stage's gradient sum over replicas continues after its last backward. backwardS is the
// time of that backward.
func (l *links) gradients(stage int, parameters, backwardS float64) float64 {
	took := 0.0
	switch l.s.Shard {
	case "none":
		took = l.allReduce(stage, parameters*l.gradientBytes())
	case "zero1":
		took = l.gather(stage, parameters*l.gradientBytes())
	}
	if l.s.Behind {
		return took
	}
	return l.beside(backwardS, took)
}

// weights returns the time of the gather of a stage's weights after their update, under zero1 and zero2. With
// WeightsAhead, the first forward of the next step, which takes forwardS, hides a part of the gather. Otherwise nothing
// hides it.
func (l *links) weights(stage int, parameters, forwardS float64) float64 {
	if l.s.Shard != "zero1" && l.s.Shard != "zero2" {
		return 0
	}
	took := l.gather(stage, parameters*l.weightBytes())
	if l.s.WeightsAhead {
		return l.beside(forwardS, took)
	}
	return took
}
