package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Kernels holds how fast a device's kernels are, by kind and size. Package profile/kernels has the equations.
type Kernels struct {
	LaunchS float64 // fixed seconds per kernel, in addition to its work
	LayerS  float64 // fixed seconds per layer and pass, in addition to its kernels
	StepS   float64 // fixed seconds per step, in addition to its layers: data, logging, synchronization
	// Overlap is the part of a collective, 0 to 1, that runs in parallel with computations if the order of work allows
	// it.
	Overlap float64
	// Flash says that attention is one kernel, which does not store the scores (Dao et al., FlashAttention, 2022).
	Flash bool
	// Fused says that each chain of memory-bound operators (norm, activation, residual) is one kernel. Products in 16
	// bits then also add weight gradients to their 32-bit sums.
	Fused bool
	Rates map[string]Rate // by kernel kind (see RateKinds)
}

// Rate is the fraction of a peak that kernels reach: Limit x width/(width + HalfWidth) x rows/(rows + HalfRows).
type Rate struct {
	Limit     float64
	HalfWidth float64 // width at which half of the limit is reached
	HalfRows  float64 // rows at which half of the limit is reached
}

// The kinds of kernels that have their own rates.
const (
	RateMatmul    = "matmul"     // matrix products; a fraction of the compute peak
	RateFP8       = "matmul_fp8" // matrix products in fp8, if their rate differs from matmul's
	RateAttention = "attention"  // products of queries, keys and values; a fraction of the compute peak
	RateMemory    = "memory"     // operators with little computation; a fraction of the memory bandwidth
)

// RateKinds lists the kernel kinds that can have rates in a cluster file.
var RateKinds = []string{RateMatmul, RateFP8, RateAttention, RateMemory}

// usualRates holds the rates of kinds that a file leaves out.
var usualRates = map[string]Rate{RateMatmul: {Limit: 0.8, HalfWidth: 128, HalfRows: 256},
	RateAttention: {Limit: 0.4}, RateMemory: {Limit: 0.85}}

// At returns the fraction of the peak that a kernel of this width and this number of rows reaches. An argument of 0 is
// ignored.
func (r Rate) At(width, rows float64) float64 {
	part := r.Limit
	if width > 0 {
		part *= width / (width + r.HalfWidth)
	}
	if rows > 0 {
		part *= rows / (rows + r.HalfRows)
	}
	return part
}

// Rate returns the rate of a kernel kind: the file's, or else the usual one. The usual rate of fp8 products is that of
// RateMatmul.
func (k *Kernels) Rate(kind string) Rate {
	if r, ok := k.Rates[kind]; ok {
		return r
	}
	if kind == RateFP8 {
		return k.Rate(RateMatmul)
	}
	return usualRates[kind]
}

// Group describes a device that is several equal devices, which compute each layer together (Shoeybi et al.,
// Megatron-LM, 2019, section 3).
type Group struct {
	Size                    int
	SequenceParallel        bool // Korthikanti et al., 2022, section 4.2.2
	BandwidthBytesPerSecond float64
	LatencyS                float64
	Protocols               []Protocol // as in Level
}

// Precisions lists the number formats for which a device type can have a peak.
var Precisions = []string{"f32", "tf32", "f16", "bf16", "fp8"}

// Peak returns the peak of one device in a precision, or 0 if it is not given. "" means f32.
func (t DeviceType) Peak(precision string) float64 {
	if p, ok := t.Peaks[precision]; ok {
		return p
	}
	if precision == "" || precision == "f32" {
		return max(t.PeakFLOPS, t.Peaks["f32"])
	}
	return 0
}

type fileKernels struct {
	Launch    string              `yaml:"launch"`
	Layer     string              `yaml:"layer"`
	Step      string              `yaml:"step"`
	Overlap   *float64            `yaml:"overlap"`
	Attention string              `yaml:"attention"`
	Fused     *bool               `yaml:"fused"`
	Rates     map[string]fileRate `yaml:"rates"`
}

type fileRate struct {
	Limit     *float64 `yaml:"limit"`
	HalfWidth *float64 `yaml:"half_width"`
	HalfRows  *float64 `yaml:"half_rows"`
}

// fileGroup is the link between the devices of a tensor-parallel group.
type fileGroup struct {
	Bandwidth string                  `yaml:"bandwidth"`
	Latency   string                  `yaml:"latency"`
	Protocols map[string]fileProtocol `yaml:"protocols"`
}

func (f *fileKernels) kernels() (*Kernels, error) {
	k := &Kernels{Overlap: said(f.Overlap), Fused: said(f.Fused), Flash: f.Attention == "flash", Rates: map[string]Rate{}}
	if f.Attention != "" && f.Attention != "flash" && f.Attention != "unfused" {
		return nil, fmt.Errorf("attention is %q; it is flash (one kernel, which keeps no scores) or unfused", f.Attention)
	}
	if !(k.Overlap >= 0 && k.Overlap <= 1) {
		return nil, fmt.Errorf("overlap is %v; it is a part, 0 to 1", k.Overlap)
	}
	for _, t := range []struct {
		text, what string
		to         *float64
	}{{f.Launch, "launch", &k.LaunchS}, {f.Layer, "layer", &k.LayerS}, {f.Step, "step", &k.StepS}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.to, err = quantity(t.text, t.what, timeUnits); err != nil {
			return nil, err
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Rates)) {
		own := f.Rates[kind]
		r := Rate{Limit: said(own.Limit), HalfWidth: said(own.HalfWidth), HalfRows: said(own.HalfRows)}
		if !slices.Contains(RateKinds, kind) {
			return nil, fmt.Errorf("rates has %q; %s", kind, registry.Instead(kind, RateKinds))
		}
		if !(r.Limit > 0 && r.Limit <= 2) || !(r.HalfWidth >= 0 && r.HalfWidth < 1e9) ||
			!(r.HalfRows >= 0 && r.HalfRows < 1e9) {
			return nil, fmt.Errorf("rates: %s is %+v; limit is over 0 and up to 2, half_width and half_rows are 0 or more",
				kind, r)
		}
		k.Rates[kind] = r
	}
	return k, nil
}

// describe reads the precisions, kernels, price and group of a device type.
func (d fileDeviceType) describe(t *DeviceType) (err error) {
	for _, name := range slices.Sorted(maps.Keys(d.Peaks)) {
		if !slices.Contains(Precisions, name) {
			return fmt.Errorf("peaks has %q; precisions are %s", name, strings.Join(Precisions, ", "))
		}
		if t.Peaks == nil {
			t.Peaks = map[string]float64{}
		}
		if t.Peaks[name], err = positive(d.Peaks[name], "peaks: "+name, speedUnits); err != nil {
			return err
		}
	}
	if p := t.Peaks["f32"]; p > 0 && d.Peak == "" {
		t.PeakFLOPS = p
	} else if p > 0 && p != t.PeakFLOPS {
		return fmt.Errorf("peak is %s and peaks: f32 is %s; both are the peak of single precision: leave one out", d.Peak,
			d.Peaks["f32"])
	}
	if d.Kernels != nil {
		if t.Kernels, err = d.Kernels.kernels(); err != nil {
			return fmt.Errorf("kernels: %w", err)
		}
	}
	if t.PricePerHour = d.PricePerHour; !(t.PricePerHour >= 0 && t.PricePerHour < 1e9) {
		return fmt.Errorf("price_per_hour is %v; it is money, 0 or more", t.PricePerHour)
	}
	if d.Tensor == 0 && d.TensorLink == nil {
		return nil
	}
	if d.Tensor < 2 || d.Tensor > 64 || d.TensorLink == nil || t.Kernels == nil {
		return fmt.Errorf("tensor is %d; a group has 2 to 64 devices, a tensor_link like {bandwidth: 300GB/s, "+
			"latency: 3us}, and kernels", d.Tensor)
	}
	t.Group = &Group{Size: d.Tensor, SequenceParallel: d.SequenceParallel}
	if t.Group.BandwidthBytesPerSecond, err = positive(d.TensorLink.Bandwidth, "tensor_link: bandwidth",
		rateUnits); err == nil && d.TensorLink.Latency != "" {
		t.Group.LatencyS, err = quantity(d.TensorLink.Latency, "tensor_link: latency", timeUnits)
	}
	if err == nil {
		t.Group.Protocols, err = protocolsOf(d.TensorLink.Protocols)
	}
	t.MemoryBytes *= int64(d.Tensor)
	t.PricePerHour *= float64(d.Tensor)
	return err
}

// text returns the kernels in the form of a cluster file.
func (k *Kernels) text() string {
	var f fields
	f.quantity("launch", k.LaunchS, timeUnits)
	f.quantity("layer", k.LayerS, timeUnits)
	f.quantity("step", k.StepS, timeUnits)
	f.number("overlap", k.Overlap)
	if k.Flash {
		f.say("attention", "flash")
	}
	if k.Fused {
		f.say("fused", "true")
	}
	var rates fields
	for _, kind := range slices.Sorted(maps.Keys(k.Rates)) {
		r := k.Rates[kind]
		of := fields{"limit: " + plain(r.Limit)}
		of.number("half_width", r.HalfWidth)
		of.number("half_rows", r.HalfRows)
		rates.say(kind, "{"+of.String()+"}")
	}
	if len(rates) > 0 {
		f.say("rates", "{"+rates.String()+"}")
	}
	return f.String()
}

// Copied returns a copy whose levels, device types and kernels may be changed. Its kernels have a rate for every
// kind.
func (c *Cluster) Copied() *Cluster {
	out := *c
	out.Levels = slices.Clone(c.Levels)
	out.DeviceTypes = maps.Clone(c.DeviceTypes)
	for name, t := range out.DeviceTypes {
		if t.Kernels == nil {
			continue
		}
		k := *t.Kernels
		k.Rates = map[string]Rate{}
		for _, kind := range RateKinds {
			k.Rates[kind] = t.Kernels.Rate(kind)
		}
		t.Kernels = &k
		out.DeviceTypes[name] = t
	}
	return &out
}
