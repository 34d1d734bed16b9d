package profile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// Analytic is the profile of a model on device types that are described, not measured: the
// roofline (Williams, Waterman and Patterson, CACM 52(4), 2009). A layer takes the longer
// of its FLOPs over the speed its kind reaches and its bytes over the memory bandwidth;
// bytes are what it reads and writes once: inputs, outputs and parameters, and in the
// backward pass those again with as many gradients. An update reads and writes
// parameters, gradients and the optimizer's copies.
//
// states is the copies of the parameters that the optimizer of this name keeps. Refused:
// device types without a peak or a memory bandwidth.
func Analytic(m *model.Model, types map[string]cluster.DeviceType, sizes []int, optimizer string, states int) (*Profile, error) {
	p := describe(m)
	p.Source, p.Optimizer, p.OptimizerStates = "roofline", optimizer, states
	for _, size := range sizes {
		if size < 1 {
			return nil, fmt.Errorf("profile: micro-batch of %d samples; sizes are 1 at least", size)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		d := types[name]
		if d.PeakFLOPS <= 0 || d.MemoryBandwidthBytesPerSecond <= 0 {
			return nil, fmt.Errorf("profile: device type %q has no peak or no memory_bandwidth; an analytic profile needs both, like peak: 15.7TFLOPS, memory_bandwidth: 900GB/s", name)
		}
		for i := range m.Layers {
			for _, size := range sizes {
				p.Layers[i].Costs = append(p.Layers[i].Costs, roofline(m, i, name, d, int64(size)))
			}
			fixed := p.Layers[i].ParameterBytes * int64(3+2*states) // read p, g and states; write p and states
			p.Layers[i].UpdateS = max(p.Layers[i].UpdateS, float64(fixed)/d.MemoryBandwidthBytesPerSecond)
		}
	}
	return p, p.Validate()
}

// roofline is the cost of layer i for a micro-batch of n samples.
func roofline(m *model.Model, i int, name string, d cluster.DeviceType, n int64) Cost {
	l := &m.Layers[i]
	in, parameters := int64(0), 4*l.ParameterElements()
	for _, from := range l.From {
		if at := m.Index(from); at >= 0 {
			in += m.Layers[at].OutputBytes()
			continue
		}
		for _, t := range m.Inputs {
			if t.Name == from {
				in += t.BytesPerSample()
			}
		}
	}
	reached, ok := d.Efficiency[l.Kind]
	if !ok {
		if reached, ok = d.Efficiency[""]; !ok {
			reached = 1
		}
	}
	moved := n*(in+l.OutputBytes()) + parameters
	time := func(flops, bytes int64) float64 {
		return max(float64(n*flops)/(d.PeakFLOPS*reached), float64(bytes)/d.MemoryBandwidthBytesPerSecond)
	}
	input, weight := time(l.InputFLOPs, moved), 0.0
	if parameters > 0 {
		weight = time(l.WeightFLOPs, moved)
	}
	saved := n * max(l.SavedBytes, l.OutputBytes())
	return Cost{
		Device: name, MicroBatch: int(n), ForwardS: time(l.ForwardFLOPs, moved), BackwardS: input + weight,
		OutputBytes: n * l.OutputBytes(), SavedBytes: saved, ForwardPeakBytes: saved, BackwardPeakBytes: n * (in + l.OutputBytes()),
		WorkspaceBytes: n * (in + l.OutputBytes()),
	}
}
