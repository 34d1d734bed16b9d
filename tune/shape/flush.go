package shape

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
)

// flush returns the times after the last backward: sums of gradients and gathers of weights that are not hidden, and
// what the updates take longer than these. With contention, a stage's sum and the last message that leaves the stage
// share the device's ports.
//
// A worker's sum begins as soon as the worker's own last backward has ended. At that time the last gradient still has
// to pass through the stages in front of the worker, which hides a part of the sum. In every placement, worker i's last
// whole backward is that of stage i. So the stages in front are 0 to i-1, one on each worker in front. The workers'
// other chunks do not count. The worker's update follows its sum. With split backwards, the second halves fill the end
// of the step, and no worker is assumed to end before the others.
func (s Shape) flush(stages []stage, l *links, d cluster.DeviceType, contention bool) (gradientsS, updateS float64) {
	of := make([]stage, s.Stages) // by worker
	for _, st := range stages {
		w := &of[st.worker]
		w.parameters, w.input, w.weight = w.parameters+st.parameters, w.input+st.input, w.weight+st.weight
		w.tied, w.forward = w.tied+st.tied, w.forward+st.forward
	}
	t := 1.0
	if d.Group != nil {
		t = float64(d.Group.Size)
	}
	f, err := family.Named(s.Schedule)
	halves := err == nil && f.Halves || s.Room > 0
	lag, late, end := 0.0, 0.0, 0.0
	sumS, messageS := make([]float64, len(of)), make([]float64, len(of))
	if contention {
		for i, w := range of {
			sumS[i], messageS[i] = l.lost(i, w.parameters, w.input+w.weight, stages[0].boundary)
			late += messageS[i]
		}
	}
	for i, w := range of {
		late -= messageS[i] // how late messages of the stages behind this one are, in seconds
		summed := l.gradients(i, w.parameters, w.input+w.weight) + l.weights(i, w.parameters, w.forward) + sumS[i] + late
		summed -= lag
		gradientsS = max(gradientsS, summed)
		if !halves {
			lag += stages[i].input + stages[i].weight
		}
		own := w.parameters * t
		if s.Shard != "none" {
			own /= float64(s.Replicas)
		}
		end = max(end, summed+kernels.UpdateS(d, own, s.States, kernels.Options{Precision: s.Precision}))
	}
	if tied := of[s.Stages-1].tied; s.Stages > 1 && tied > 0 && of[0].tied == 0 {
		latency, taken := l.transfer(0, s.Stages-1, tied*l.gradientBytes())
		gradientsS, end = gradientsS+2*latency+taken, end+2*latency+taken
	}
	return gradientsS, end - gradientsS
}

// ports returns the ports that the messages of these replicas take. Each replica has workers of its own, as in copies.
// It is nil without contention, and if messages take no time (free) or share no ports (apart). Sums take no ports here,
// because gradients are summed afterwards.
func (l *links) ports(stages []stage, bytes float64, replicas []int) *sim.Ports {
	if l.free || l.apart || !l.c.Contends() {
		return nil
	}
	workers := l.s.Stages
	return &sim.Ports{Sums: make([][]cluster.Load, len(stages)),
		Message: func(from, to int, _ int64, linkS float64) []cluster.Load {
			r, a, b := replicas[from/workers], from%workers, to%workers
			return l.c.MessageLoads(l.rank(a, r), l.rank(b, r), int64(bytes*l.sharing(a, b)), linkS)
		}}
}

// whole returns all devices of a stage.
func (l *links) whole(stage int) (all []int) {
	for _, first := range l.replicas(stage) {
		for i := range l.s.Tensor {
			all = append(all, first+i)
		}
	}
	return all
}

// lost returns how much longer two transfers take because they share ports: a stage's sum of gradients, and the stage's
// last message to the stage before it. The message leaves when the last backward ends, while the rest of the sum is
// still under way. The last message of a split backward leaves before the backward's second half, so it meets no sum.
// Under zero2 and zero3 backwards sum the gradients, so no sum is left.
func (l *links) lost(stage int, parameters, backwardS, boundary float64) (sumS, messageS float64) {
	if f, err := family.Named(l.s.Schedule); stage == 0 || err != nil || f.Halves {
		return 0, 0
	}
	bytes, what, takes := parameters*l.gradientBytes(), cluster.AllReduce, 0.0
	switch l.s.Shard {
	case "none":
		takes = l.allReduce(stage, bytes)
	case "zero1":
		what, takes = cluster.Gather, l.gather(stage, bytes)
	}
	left := takes
	if !l.s.Behind {
		left -= backwardS
	}
	_, linkS := l.transfer(stage, stage-1, boundary)
	if left <= 0 || linkS <= 0 {
		return 0, 0
	}
	sum, message := rates(l.c.MessageLoads(l.rank(stage, 0), l.rank(stage-1, 0), int64(boundary*l.sharing(stage, stage-1)),
		linkS), l.c.SumLoads(l.whole(stage), bytes*float64(l.s.Tensor), what, takes))
	// Until the sum or the message ends, both proceed at these rates. Then the other one has the port to itself.
	together := min(left/sum, linkS/message)
	return together * (1 - sum), together * (1 - message)
}

// rates returns the fair rates of a sum and a message, as fractions of the rates that they have alone.
func rates(message, sum []cluster.Load) (sumRate, messageRate float64) {
	sumRate, messageRate = 1, 1
	for _, m := range message {
		for _, s := range sum {
			if m.Port == s.Port && m.Part+s.Part > 1 { // each gets half of the port, or more if the other needs less
				sumRate = min(sumRate, max(0.5, 1-m.Part)/s.Part)
				messageRate = min(messageRate, max(0.5, 1-s.Part)/m.Part)
			}
		}
	}
	return sumRate, messageRate
}
