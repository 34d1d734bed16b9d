package dapple

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// costs computes the times and memory of stages and transfers, for one micro-batch size.
type costs struct {
	*places
	p  *profile.Profile
	M  int
	mb int

	forward    [][]float64 // by type, prefix sums over layers
	backward   [][]float64
	fastest    []float64 // by layer: forward and backward of it and all later layers, each on its fastest device type
	parameters []int64   // prefix sums over layers
	fixed      []int64   // parameters, gradients, the optimizer's copies, buffers, frozen values
	saved      []int64   // activations of one micro-batch
	cut        []int64   // bytes that cross before a layer
	workspace  int64     // of the layer with the largest workspace
	recompute  string    // auto, yes, no
}

func newCosts(p *profile.Profile, places *places, batch, mb int, recompute string) (*costs, error) {
	n := len(p.Layers)
	d := &costs{
		places: places, p: p, M: batch / mb, mb: mb, recompute: recompute,
		parameters: make([]int64, n+1), fixed: make([]int64, n+1), saved: make([]int64, n+1), cut: make([]int64, n+1),
		fastest: make([]float64, n+1),
	}
	fast := make([]profile.Cost, n)
	for i, t := range places.types {
		costs, _, err := p.At(t, mb)
		if err != nil {
			return nil, fmt.Errorf("plan: dapple: %w", err)
		}
		if i == 0 {
			d.sizes(costs)
		}
		f, b := make([]float64, n+1), make([]float64, n+1)
		for k := range costs {
			f[k+1], b[k+1] = f[k]+costs[k].ForwardS, b[k]+costs[k].BackwardS
		}
		d.forward, d.backward = append(d.forward, f), append(d.backward, b)
		for k, c := range costs {
			if least := &fast[k]; i == 0 || c.ForwardS+c.BackwardS < least.ForwardS+least.BackwardS {
				*least = c
			}
		}
	}
	f, b := make([]float64, n+1), make([]float64, n+1)
	for k, c := range fast {
		f[k+1], b[k+1] = f[k]+c.ForwardS, b[k]+c.BackwardS
	}
	for k := range d.fastest {
		d.fastest[k] = f[n] - f[k] + b[n] - b[k]
	}
	return d, nil
}

// sizes fills in the sizes in bytes, which do not depend on the device type.
func (d *costs) sizes(costs []profile.Cost) {
	n := len(costs)
	ends := make([]int64, n+1) // bytes of outputs, by the layer that reads them last
	live := int64(0)
	last := make([]int, n)
	for k, l := range d.p.Layers {
		for _, from := range l.From {
			if from >= 0 {
				last[from] = k
			}
		}
	}
	for k, l := range d.p.Layers {
		d.cut[k] = live
		if last[k] > k {
			live += costs[k].OutputBytes
			ends[last[k]] += costs[k].OutputBytes
		}
		live -= ends[k]
		d.parameters[k+1] = d.parameters[k] + l.ParameterBytes
		own := l.ParameterBytes + l.TiedBytes
		d.fixed[k+1] = d.fixed[k] + own + d.p.SummedBytes(own) + d.p.StateBytes(own) + l.StillBytes()
		d.saved[k+1] = d.saved[k] + costs[k].SavedBytes
		d.workspace = max(d.workspace, costs[k].WorkspaceBytes)
	}
}

// stage returns the times of layers from..to-1 on a group, whose replicas split every micro-batch. With several device
// types, the times are those of the slowest. `fits` is true if the memory holds one micro-batch in flight, and there is
// a sample for every replica. `again` says that the stage recomputes. A stage recomputes if the setting demands it, or
// if the setting allows it and the stage does not fit otherwise.
func (d *costs) stage(from, to int, g *group) (s stage, again, fits bool) {
	r := float64(len(g.devices))
	for _, t := range g.types {
		s.F = max(s.F, (d.forward[t][to]-d.forward[t][from])/r)
		s.B = max(s.B, (d.backward[t][to]-d.backward[t][from])/r)
	}
	s.AR = g.allReduceS(float64(d.parameters[to] - d.parameters[from]))
	again, fits = d.recompute == "yes", d.depth(from, to, len(g.devices), g.memory, d.recompute == "yes") > 0
	if !fits && d.recompute == "auto" {
		again, fits = true, d.depth(from, to, len(g.devices), g.memory, true) > 0
	}
	if again {
		s.B += s.F
	}
	return s, again, fits && len(g.devices) <= d.mb
}

// depth returns D of §5.3: the number of micro-batches, at most M, whose activations fit in the memory of each replica.
// Weights, gradients, the optimizer and a layer's workspace come first.
func (d *costs) depth(from, to, replicas int, memory int64, again bool) int {
	if memory == 0 {
		return d.M
	}
	r := int64(replicas)
	slice := func(bytes int64) int64 { return (bytes + r - 1) / r }
	left := memory - (d.fixed[to] - d.fixed[from]) - slice(d.workspace)
	each := slice(d.cut[from] + d.saved[to] - d.saved[from])
	if again {
		left -= slice(d.saved[to] - d.saved[from])
		each = slice(d.cut[from])
	}
	if left < 0 {
		return 0
	}
	if each == 0 {
		return d.M
	}
	return int(min(int64(d.M), left/each))
}

// network returns the times between two stages: a micro-batch's activations one way, their gradients back.
func (d *costs) network(a cluster.Line, before int) stage {
	t := a.Of(float64(d.cut[before]))
	return stage{F: t, B: t}
}

// bound returns a step time that no plan of these layers on these devices beats. It assumes that all devices compute
// without pause, each type at its own speed.
func (d *costs) bound() float64 {
	n, rate := len(d.p.Layers), 0.0
	for _, t := range d.typeOf {
		rate += 1 / max(d.forward[t][n]+d.backward[t][n], math.SmallestNonzeroFloat64)
	}
	return float64(d.M) / rate
}
