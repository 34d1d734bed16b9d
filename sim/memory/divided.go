package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// Unit is layers from..to-1 whose weights are gathered together, and whose gradients are scattered together. It is a
// block, or a single layer outside of blocks. FSDP wraps blocks in this way (Zhao et al., VLDB 2023, section 3.2.1).
type Unit struct {
	From, To                   int
	WeightBytes, GradientBytes int64 // whole sizes, not one replica's part
}

// Units returns the units of a stage. If a layer in front of the stage owns a parameter, the stage has its own copy of
// that parameter. The copy's weights and gradients count here.
func Units(p *profile.Profile, st plan.Stage) (all []Unit) {
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		layer := &p.Layers[l]
		block := plan.BlockOf(layer.Name)
		if l == st.FirstLayer || block == "" || block != plan.BlockOf(p.Layers[l-1].Name) {
			all = append(all, Unit{From: l})
		}
		u := &all[len(all)-1]
		u.To = l + 1
		u.WeightBytes += layer.ParameterBytes
		if layer.TiedTo >= 0 && layer.TiedTo < st.FirstLayer { // a weight tied to an earlier stage: this stage has a copy
			u.WeightBytes += layer.TiedBytes
		}
		u.GradientBytes += p.SummedBytes(layer.ParameterBytes + layer.TiedBytes)
	}
	return all
}

// share returns a replica's part of bytes that n replicas divide, rounded up.
func share(bytes int64, n int) int64 { return (bytes + int64(n) - 1) / int64(n) }

// divided says what the n replicas of a stage divide among them, and computes a replica's part.
type divided struct {
	shard plan.Shard
	n     int
}

func (d divided) states(bytes int64) int64 {
	if d.shard.States() {
		return share(bytes, d.n)
	}
	return bytes
}

func (d divided) gradients(bytes int64) int64 {
	if d.shard.Gradients() {
		return share(bytes, d.n)
	}
	return bytes
}

func (d divided) weights(bytes int64) int64 {
	if d.shard.Weights() {
		return share(bytes, d.n)
	}
	return bytes
}

// whole adds what instructions hold in full for a moment. These are the weights of two neighbouring units, since one is
// gathered while the other computes, and the gradients of one unit, until they are scattered.
func (d divided) whole(out *Held, units []Unit) {
	if d.n < 2 || !d.shard.Gradients() {
		return
	}
	var weights, gradients int64
	for i, u := range units {
		gradients = max(gradients, u.GradientBytes)
		if d.shard.Weights() {
			both := u.WeightBytes
			if i > 0 {
				both += units[i-1].WeightBytes
			}
			weights = max(weights, both)
		}
	}
	for _, peak := range []*int64{&out.ForwardPeak, &out.EvaluatePeak} {
		*peak += weights
	}
	for _, peak := range []*int64{&out.FirstBackwardPeak, &out.BackwardPeak, &out.FirstInputPeak, &out.InputPeak,
		&out.FirstWeightPeak, &out.WeightPeak} {
		*peak += weights + gradients
	}
}
