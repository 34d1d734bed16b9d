package shape

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule"
)

// links says what messages between stages and collectives of replicas take.
type links struct {
	c       *cluster.Cluster
	s       Shape
	overlap float64
	played  int                  // computations that were simulated
	free    bool                 // messages between stages take no time
	known   map[[2]int64]float64 // by stage and bytes
	orders  map[order]*schedule.Program
}

// rank is the device of a stage and a replica, the first of its group.
func (l *links) rank(stage, replica int) int { return (stage*l.s.Replicas + replica) * l.s.Tensor }

// transfer is a message between neighbouring stages.
func (l *links) transfer(from, to int, bytes float64) (latencyS, linkS float64) {
	if l.free {
		return 0, 0
	}
	latencyS, linkS = l.c.Transfer(l.rank(from, 0), l.rank(to, 0), int64(bytes))
	if t := l.s.Tensor; t > 1 && !l.s.SequenceParallel { // each device needs the others' parts too
		group := make([]int, t)
		for i := range group {
			group[i] = i
		}
		linkS += l.c.CollectiveS(group, bytes*float64(t), cluster.Gather)
	}
	return latencyS, linkS
}

// allReduce is a sum of bytes over the replicas of a stage.
func (l *links) allReduce(stage int, bytes float64) float64 {
	if l.s.Replicas == 1 || bytes == 0 {
		return 0
	}
	key := [2]int64{int64(stage), int64(bytes)}
	if s, ok := l.known[key]; ok {
		return s
	}
	devices := make([]int, l.s.Replicas)
	for r := range devices {
		devices[r] = l.rank(stage, r)
	}
	if l.known == nil {
		l.known = map[[2]int64]float64{}
	}
	l.known[key] = l.c.CollectiveS(devices, bytes, cluster.AllReduce)
	return l.known[key]
}

// gather is a gather of so many bytes in all, or a reduce-scatter.
func (l *links) gather(stage int, bytes float64) float64 {
	if l.s.Replicas == 1 || bytes == 0 {
		return 0
	}
	devices := make([]int, l.s.Replicas)
	for r := range devices {
		devices[r] = l.rank(stage, r)
	}
	return l.c.CollectiveS(devices, bytes, cluster.Gather)
}

// gradientBytes is those of an element while it is summed.
func (l *links) gradientBytes() float64 {
	switch {
	case l.s.GradientBytes > 0:
		return float64(l.s.GradientBytes)
	case l.s.Precision == "f16":
		return 2
	}
	return 4
}

// sharded is a unit's times with the collectives that bring its weights and take its gradients, where replicas divide
// them; gather is what nothing hides.
func (l *links) sharded(u unit) (forwardS, inputS, gather float64) {
	weights := u.parameters * float64(kernels.ElementBytes(l.s.Precision))
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

// beside is how much longer computations take with a collective beside them.
func (l *links) beside(computesS, collectiveS float64) float64 {
	return max(computesS, collectiveS) + (1-l.overlap)*min(computesS, collectiveS) - computesS
}

// gradients is what a stage's sum over replicas takes behind its last backward, which takes backwardS.
func (l *links) gradients(stage int, parameters, backwardS float64) float64 {
	weights := parameters * float64(kernels.ElementBytes(l.s.Precision))
	took := 0.0
	switch l.s.Shard {
	case "none":
		took = l.allReduce(stage, parameters*l.gradientBytes())
	case "zero1":
		took = l.gather(stage, parameters*l.gradientBytes()) + l.gather(stage, weights)
	case "zero2":
		took = l.gather(stage, weights)
	}
	if l.s.Behind || l.s.Shard == "zero2" {
		return took
	}
	return l.beside(backwardS, took)
}
