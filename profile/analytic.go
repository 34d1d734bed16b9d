package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile/board"
	"github.com/millrace-ml/millrace/profile/kernels"
)

// Analysis says what an analytic profile should contain, and under which assumptions.
type Analysis struct {
	Sizes     []int  // sizes of micro-batches, in samples
	Optimizer string // name of the optimizer
	States    int    // copies of the parameters that the optimizer keeps
	// OnChip keeps parameters in on-chip memory, on device types that have such memory. Parameters that fit there use
	// no memory bandwidth (BaPipe, section 4.3).
	OnChip bool
	// Board holds assumptions about FPGA boards. With Roofline, boards count like other devices: they compute one layer
	// at a time, forward or backward. They then read and write everything in memory, except parameters under OnChip.
	Board    board.Settings
	Roofline bool
	// Recurrent makes recurrent layers read their state weights once per position if these exceed the cache. That slows
	// down small micro-batches, and matters for tuning their size. Without Recurrent, all sizes are about equally
	// efficient. The published planners assume equal efficiency too, as they scale one measured size.
	Recurrent bool
	// Precision is one of cluster.Precisions; "" means f32. With 16 bits or fp8 the optimizer also keeps 32-bit weights
	// (Micikevicius et al., Mixed Precision Training, 2018, section 3.1).
	Precision string
	// Selective recomputes attention scores in the backward (Korthikanti et al., 2022, section 5).
	Selective bool
}

// Analytic is Analyze with only the sizes and the optimizer set; weights are in memory.
func Analytic(m *model.Model, types map[string]cluster.DeviceType, sizes []int, optimizer string,
	states int) (*Profile, error) {
	return Analyze(m, types, Analysis{Sizes: sizes, Optimizer: optimizer, States: states})
}

// Analyze returns the profile of a model on device types that are described and not measured. It uses the roofline
// model (Williams, Waterman and Patterson, CACM 52(4), 2009). A forward, and each half of a backward, takes the longer
// of two times. One is its FLOPs over the speed that the layer's kind reaches. The other is its bytes over the memory
// bandwidth reached (Efficiency). A forward reads the layer's inputs and parameters and writes its outputs once. Each
// half of a backward moves as many bytes as a forward. A layer without parameters has no half for their gradients.
// Batch norm and the activation after a convolution read and write its output again, in separate kernels. An update
// reads parameters, gradients and the optimizer's copies, and writes parameters and copies.
//
// A device type with cluster.Kernels uses package profile/kernels, which also splits the backward in halves. Boards use
// package board, unless Roofline is set.
//
// Refused: device types without a peak or a memory bandwidth; for device types without kernels, Selective and
// precisions other than f32; sizes below 1; unknown settings of boards.
func Analyze(m *model.Model, types map[string]cluster.DeviceType, a Analysis) (*Profile, error) {
	p := Describe(m)
	p.Source, p.Optimizer, p.OptimizerStates = "roofline", a.Optimizer, a.States
	if err := a.Board.Check(); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	for _, size := range a.Sizes {
		if size < 1 {
			return nil, fmt.Errorf("profile: micro-batch of %d samples; sizes are 1 at least", size)
		}
	}
	if a.Precision != "f32" {
		p.Precision = a.Precision
	}
	byKernels := p.Precision != "" || a.Selective
	for _, d := range types {
		byKernels = byKernels || d.Kernels != nil
	}
	if byKernels {
		p.Source = "kernels"
	}
	for i := range p.Layers {
		e := kernels.ElementBytes(a.Precision)
		p.Layers[i].ParameterBytes, p.Layers[i].TiedBytes = p.Layers[i].ParameterBytes/4*e, p.Layers[i].TiedBytes/4*e
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		d := types[name]
		if d.Kernels != nil || p.Precision != "" || a.Selective {
			if err := p.byKernels(m, name, d, a); err != nil {
				return nil, err
			}
			continue
		}
		if d.PeakFLOPS <= 0 || d.MemoryBandwidthBytesPerSecond <= 0 {
			return nil, fmt.Errorf("profile: device type %q has no peak or no memory_bandwidth; an analytic profile "+
				"needs both, like peak: 15.7TFLOPS, memory_bandwidth: 900GB/s; or give one that was measured on such devices, "+
				"with --profile", name)
		}
		memory := d.MemoryBandwidthBytesPerSecond * Efficiency(name, d, Memory)
		onChip := a.OnChip && d.OnChipBytes() > 0
		for i := range m.Layers {
			for _, size := range a.Sizes {
				cost := roofline(m, i, name, d, int64(size), onChip, a.Recurrent, p.Layers[i].NoGradient)
				if d.FPGA != nil {
					cost.onBoard(&m.Layers[i], d, a, onChip, p.Layers[i].NoGradient)
				}
				p.Layers[i].Costs = append(p.Layers[i].Costs, cost)
			}
			rate := memory
			if onChip {
				rate = board.WordsRate(d)
			}
			p.Layers[i].UpdateTimes.Max(updatesOf(p.Layers[i].ParameterBytes, a.States, rate))
		}
	}
	return p, p.Validate()
}

// byKernels adds the costs of all layers on a device type that has kernels.
func (p *Profile) byKernels(m *model.Model, name string, d cluster.DeviceType, a Analysis) error {
	o := kernels.Options{Precision: a.Precision, Selective: a.Selective}
	e := kernels.ElementBytes(a.Precision)
	for i := range p.Layers {
		layer := &p.Layers[i]
		outside := int64(0) // bytes that the layer reads for one sample
		for k, from := range layer.From {
			if from >= 0 {
				outside += p.Layers[from].perSample(e)
			} else if k < len(layer.Feeds) {
				outside += layer.Feeds[k].BytesPerSample
			}
		}
		elements := float64(layer.ParameterBytes / e)
		for _, size := range a.Sizes {
			k, err := kernels.Of(m, i, size, name, d, o)
			if err != nil {
				return err
			}
			n := int64(size)
			out := n * layer.perSample(e)
			saved := max(k.SavedBytes, out)
			moment := n*outside + out
			pending := int64(0)
			if layer.ParameterBytes > 0 {
				pending = moment
			}
			c := Cost{Device: name, MicroBatch: size, ForwardS: k.ForwardS, BackwardS: k.InputS + k.WeightS,
				OutputBytes: out, SavedBytes: saved, ForwardPeakBytes: saved, BackwardPeakBytes: moment,
				WorkspaceBytes: moment, PendingBytes: &pending}
			if !a.Selective {
				c.Scores = Scores{AgainS: k.ScoresS, Bytes: k.ScoresBytes}
			}
			if layer.NoGradient {
				c.BackwardS, c.BackwardPeakBytes = 0, 0
			} else {
				c.BackwardInputS, c.BackwardWeightS = &k.InputS, &k.WeightS
			}
			layer.Costs = append(layer.Costs, c)
		}
		s := kernels.UpdateS(d, elements, a.States, o)
		layer.UpdateTimes.Max(UpdateTimes{UpdateS: s, PulledUpdateS: s * float64(5+2*a.States) / float64(3+2*a.States),
			ReferenceUpdateS: s * 3 / float64(3+2*a.States)})
	}
	return nil
}

// perSample returns the bytes of a layer's output for one sample, with e bytes per number.
func (l *Layer) perSample(e int64) int64 {
	n := l.WholeOutputBytes
	for _, elements := range l.FloatOutputs {
		n += e * elements
	}
	return n
}

// roofline returns the cost of layer i for a micro-batch of n samples. A frozen layer has no backward.
func roofline(m *model.Model, i int, name string, d cluster.DeviceType, n int64, onChip, recurrent, frozen bool) Cost {
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
	moved, again := n*(in+l.OutputBytes()), int64(0)
	if !onChip {
		moved += passing(l)
	}
	if recurrent && !onChip {
		again = rereading(l)
	}
	speed := d.PeakFLOPS * Efficiency(name, d, l.Kind)
	memory := d.MemoryBandwidthBytesPerSecond * Efficiency(name, d, Memory)
	activation := float64(n*l.OutputBytes()*passes(l)) / memory
	time := func(flops, bytes int64) float64 {
		return max(float64(n*flops)/speed, float64(bytes)/memory)
	}
	input, weight := time(l.InputFLOPs, moved+again)+activation, 0.0
	if parameters > 0 {
		weight = time(l.WeightFLOPs, moved)
	}
	saved := n * max(l.SavedBytes, l.OutputBytes())
	pending := int64(0)
	if parameters > 0 {
		pending = n * (in + l.OutputBytes())
	}
	if frozen {
		return Cost{
			Device: name, MicroBatch: int(n), ForwardS: time(l.ForwardFLOPs, moved+again) + activation,
			OutputBytes: n * l.OutputBytes(), SavedBytes: n * l.OutputBytes(), ForwardPeakBytes: saved,
			WorkspaceBytes: saved, PendingBytes: &pending,
		}
	}
	return Cost{
		Device: name, MicroBatch: int(n), ForwardS: time(l.ForwardFLOPs, moved+again) + activation,
		BackwardS:   input + weight,
		OutputBytes: n * l.OutputBytes(), SavedBytes: saved, ForwardPeakBytes: saved,
		BackwardPeakBytes: n * (in + l.OutputBytes()),
		WorkspaceBytes:    n * (in + l.OutputBytes()), PendingBytes: &pending,
	}
}

// onBoard replaces a layer's times by its times on a board. With Roofline it keeps the times. If the weights are on the
// chip, it records that in c.Board.
func (c *Cost) onBoard(l *model.Layer, d cluster.DeviceType, a Analysis, onChip, frozen bool) {
	switch {
	case !a.Roofline:
		forward, backward, of := a.Board.Of(l, d, int64(c.MicroBatch), onChip)
		c.ForwardS, c.Board = forward, &of
		if frozen {
			of.PairedS, of.BackwardMemoryS = forward, 0
		} else {
			c.BackwardS = backward
		}
	case onChip:
		c.Board = &board.Cost{PairedS: c.ForwardS + c.BackwardS, OnChip: true}
	}
}

// passing returns the bytes of parameters that a layer reads. For an embedding it is 0: only the rows of its tokens are
// read, and these are already counted as its output.
func passing(l *model.Layer) int64 {
	if l.Kind == "embedding" {
		return 0
	}
	return 4 * l.ParameterElements()
}

// cacheBytes is the second-level cache of a V100 (NVIDIA, Tesla V100 GPU architecture, 2017). Weights that fit stay
// there from one position to the next. Later GPUs have larger caches, but no device description has its cache size yet.
const cacheBytes = 6 << 20

// rereading returns the bytes of parameters that a recurrent layer reads again. Each position needs the weights of the
// state, in the forward and for the gradient of the input. The gradient of the weights is one product over all
// positions. With small micro-batches, these reads take longer than the computing, so one more sample costs nothing.
// Weights that fit in the cache are not read again.
func rereading(l *model.Layer) int64 {
	if l.Kind != "lstm" {
		return 0
	}
	bytes := int64(0)
	for _, p := range l.Params {
		if len(p.Shape) == 2 && p.Shape[0] == 4*p.Shape[1] && strings.HasSuffix(p.Name, "state") {
			bytes += 4 * int64(p.Shape[0]) * int64(p.Shape[1])
		}
	}
	if bytes <= cacheBytes {
		return 0
	}
	return bytes * int64(l.Outputs[0].Shape[0]-1)
}

// passes returns how often the output of a convolution passes through memory again. An activation reads and writes it
// once; batch norm reads it twice and writes it once.
func passes(l *model.Layer) int64 {
	if l.Kind != "conv2d" {
		return 0
	}
	n := int64(0)
	if l.Word("activation") != "none" {
		n += 2
	}
	if l.Flag("batch_norm") {
		n += 3
	}
	return n
}
