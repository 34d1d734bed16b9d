package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// Options say how layers are computed.
type Options struct {
	Precision string // one of cluster.Precisions; "" is f32
	// Selective recomputes attention scores in the backward (Korthikanti et al., 2022, section 5).
	Selective bool
}

// ElementBytes returns the bytes of an activation or a weight in a precision.
func ElementBytes(precision string) int64 {
	switch precision {
	case "f16", "bf16", "fp8":
		return 2
	}
	return 4
}

// Sixteen reports whether a precision trains 16-bit weights, with 32-bit copies in the optimizer.
func Sixteen(precision string) bool { return ElementBytes(precision) == 2 }

// Spent is the time of kernels, in seconds, in four parts by what limits each kernel.
type Spent struct {
	ProductsS  float64 `json:"products_s"`     // products of matrices, limited by computing
	AttentionS float64 `json:"attention_s"`    // products of queries, keys and values, limited by computing
	MemoryS    float64 `json:"memory_bound_s"` // kernels of any kind that memory bandwidth limits
	LaunchesS  float64 `json:"launches_s"`     // fixed times of kernels and of layers
}

// Plus returns s + times * t.
func (s Spent) Plus(t Spent, times float64) Spent {
	return Spent{s.ProductsS + times*t.ProductsS, s.AttentionS + times*t.AttentionS, s.MemoryS + times*t.MemoryS,
		s.LaunchesS + times*t.LaunchesS}
}

// Cost is the cost of a layer on a device, or on a group of devices.
type Cost struct {
	ForwardS, InputS, WeightS float64 // times of the forward, and of the two halves of the backward
	CoreS                     float64 // the part of InputS that recomputes scores under Selective
	CheapS, ProductsS         float64 // the parts of ForwardS that memory-bound operators and matrix products take
	SummedS                   float64 // the time of the group's sums, a part of ForwardS and InputS
	ScoresS                   float64 // time to recompute scores, whether or not Selective is set
	Spent                     Spent   // forward and backward, without SummedS and CoreS
	SavedBytes                int64   // kept by the whole group from forward to backward, without the layer's input
	// PendingBytes is the size of what the weight half of the backward needs, for the whole group: inputs of products
	// and gradients of their outputs.
	PendingBytes int64
	ScoresBytes  int64 // saved bytes that Selective frees or would free, for the whole group
}

// kernel is one kernel, or several equal ones.
type kernel struct {
	rate        string
	flops       float64
	width, rows float64
	bytes       float64
	launches    float64
}

// work is the work of a layer on each device of a group.
type work struct {
	forward, input, weight, core []kernel // core is recomputed under Selective
	forwardSum, inputSum         float64  // bytes that the group sums
	saved, pending               float64  // bytes on each device
	scores                       float64  // the part of saved that is not kept under Selective
}

// device is a device type with the numbers on which its kernels depend.
type device struct {
	peak, memory float64
	fp8          float64 // peak of products in fp8
	k            *cluster.Kernels
	t, sp        float64 // t: devices of its group; sp: t if they also divide the sequence, otherwise 1
	link         *cluster.Group
	e            float64 // bytes of an element
	o            Options
}

// Of returns the cost of layer i of a model for a micro-batch of n samples.
func Of(m *model.Model, i, n int, name string, d cluster.DeviceType, o Options) (Cost, error) {
	on, err := newDevice(name, d, o)
	if err != nil {
		return Cost{}, err
	}
	l := &m.Layers[i]
	w, err := on.work(l, reads(m, l), float64(n))
	if err != nil {
		return Cost{}, fmt.Errorf("profile: layer %d (%s) on a group of %d of device type %s: %w", i, l.Name, int(on.t), name,
			err)
	}
	c := Cost{ForwardS: on.time(w.forward), InputS: on.time(w.input), WeightS: on.time(w.weight)}
	c.ScoresS = on.time(w.core)
	if o.Selective {
		c.CoreS = c.ScoresS
		c.InputS += c.CoreS
	}
	for _, pass := range [][]kernel{w.forward, w.input, w.weight} {
		on.spend(&c.Spent, pass)
	}
	forward, input := on.sum(w.forwardSum), on.sum(w.inputSum)
	c.ForwardS, c.InputS, c.SummedS = c.ForwardS+forward, c.InputS+input, forward+input
	for _, k := range w.forward {
		one := on.time([]kernel{k}) - on.k.LayerS
		if c.CheapS += one; k.rate != cluster.RateMemory {
			c.CheapS -= one
			if k.rate != cluster.RateAttention {
				c.ProductsS += one
			}
		}
	}
	c.SavedBytes, c.PendingBytes = int64(w.saved*on.t), int64(w.pending*on.t)
	c.ScoresBytes = int64(w.scores * on.t)
	return c, nil
}

func newDevice(name string, d cluster.DeviceType, o Options) (device, error) {
	peak, memory := d.Peak(o.Precision), d.MemoryBandwidthBytesPerSecond
	if d.Kernels == nil || peak <= 0 || memory <= 0 {
		want := o.Precision
		if want == "" {
			want = "f32"
		}
		lacks := "no kernels, which say how fast small matrices are computed"
		switch {
		case peak <= 0:
			lacks = "no peak in " + want
		case memory <= 0:
			lacks = "no memory_bandwidth"
		}
		remedy := "a type of a cluster file has all of that with like: TYPE (" + strings.Join(cluster.Types(), ", ") + ")"
		if slices.Contains(cluster.Types(), name) {
			remedy = "a type of a cluster file has all of that with like: " + name
		}
		return device{}, fmt.Errorf("profile: device type %q has %s; costs in %s need it: %s", name, lacks, want, remedy)
	}
	fp8 := peak
	if o.Precision == "fp8" { // everything except matrix products is in bf16
		if peak = d.Peak("bf16"); peak <= 0 {
			return device{}, fmt.Errorf("profile: device type %q has no peak in bf16, which fp8 computes attention in", name)
		}
	}
	on := device{fp8: fp8, peak: peak, k: d.Kernels, t: 1, sp: 1, e: float64(ElementBytes(o.Precision)), o: o,
		memory: memory * d.Kernels.Rate(cluster.RateMemory).Limit}
	if d.Group != nil {
		on.link, on.t = d.Group, float64(d.Group.Size)
		if d.Group.SequenceParallel {
			on.sp = on.t
		}
	}
	return on, nil
}

// time returns how long kernels take one after the other, including their layer's fixed time.
func (d *device) time(all []kernel) float64 {
	if len(all) == 0 {
		return 0
	}
	var s Spent
	d.spend(&s, all)
	return s.ProductsS + s.AttentionS + s.MemoryS + s.LaunchesS
}

// spend adds the time of kernels to s.
func (d *device) spend(s *Spent, all []kernel) {
	if len(all) == 0 {
		return
	}
	s.LaunchesS += d.k.LayerS
	for _, w := range all {
		compute, moves := 0.0, w.bytes/d.memory
		if w.flops > 0 {
			peak := d.peak
			if w.rate == cluster.RateFP8 {
				peak = d.fp8
			}
			compute = w.flops / (peak * d.k.Rate(w.rate).At(w.width, w.rows))
		}
		s.LaunchesS += w.launches * d.k.LaunchS
		switch {
		case compute <= moves:
			s.MemoryS += moves
		case w.rate == cluster.RateAttention:
			s.AttentionS += compute
		default:
			s.ProductsS += compute
		}
	}
}

// sum returns the time of a ring all-reduce in the group of t devices: 2 (t-1) messages of 1/t of the bytes each.
func (d *device) sum(bytes float64) float64 {
	if d.link == nil || bytes == 0 {
		return 0
	}
	return d.link.RingS(bytes, 2)
}

// UpdateS returns the time of one optimizer step. Each device of a group updates its part of the elements. It reads
// weights, gradients and states, and writes states and weights.
func UpdateS(d cluster.DeviceType, elements float64, states int, o Options) float64 {
	on, err := newDevice("", d, o)
	if err != nil {
		return 0
	}
	bytes := float64(4 * (3 + 2*states))
	if Sixteen(o.Precision) {
		bytes = float64(2+2*4*(1+states)) + 2 // gradient and weight in 16 bits; 32-bit weights and states, read and written
	}
	return elements / on.t * bytes / on.memory
}

// reads returns the tensors that a layer reads for one sample.
func reads(m *model.Model, l *model.Layer) (in []model.Tensor) {
	for _, from := range l.From {
		if at := m.Index(from); at >= 0 {
			in = append(in, m.Layers[at].Outputs...)
			continue
		}
		for _, t := range m.Inputs {
			if t.Name == from {
				in = append(in, t)
			}
		}
	}
	return in
}
