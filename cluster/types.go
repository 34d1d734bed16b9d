package cluster

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// The presets of device types: every number with its source in a comment.
//
//go:embed types.yaml
var typesFile []byte

var types = func() map[string]fileDeviceType {
	var f struct {
		DeviceTypes map[string]fileDeviceType `yaml:"device_types"`
	}
	if err := strictyaml.Decode(typesFile, &f); err != nil {
		panic("cluster: types.yaml: " + err.Error())
	}
	return f.DeviceTypes
}()

// Types lists the device types that a file may build on with like.
func Types() []string { return slices.Sorted(maps.Keys(types)) }

// resolved is a device type with what the preset it is like says, where it says nothing itself.
func (d fileDeviceType) resolved() (fileDeviceType, error) {
	if d.Like == "" {
		return d, nil
	}
	out, ok := types[d.Like]
	if !ok {
		return d, fmt.Errorf("like: %w", registry.None("device type", d.Like, Types()))
	}
	for _, f := range []struct{ own, to *string }{{&d.Memory, &out.Memory}, {&d.Peak, &out.Peak},
		{&d.MemoryBandwidth, &out.MemoryBandwidth}} {
		if *f.own != "" {
			*f.to = *f.own
		}
	}
	if len(d.Peaks) > 0 {
		out.Peaks = maps.Clone(out.Peaks)
		maps.Copy(out.Peaks, d.Peaks)
	}
	if d.Kernels != nil {
		out.Kernels = d.Kernels.over(out.Kernels)
	}
	if d.FPGA != nil || d.Efficiency != nil {
		return d, fmt.Errorf("it has fpga or efficiency beside like: kernels say how fast its kernels are")
	}
	if out.PricePerHour == 0 || d.PricePerHour > 0 {
		out.PricePerHour = d.PricePerHour
	}
	out.Tensor, out.TensorLink, out.SequenceParallel = d.Tensor, d.TensorLink, d.SequenceParallel
	return out, nil
}

// over is kernels with what others say, where they say nothing themselves.
func (f *fileKernels) over(base *fileKernels) *fileKernels {
	out := *base
	for _, t := range []struct{ own, to *string }{{&f.Launch, &out.Launch}, {&f.Layer, &out.Layer}, {&f.Step, &out.Step},
		{&f.Attention, &out.Attention}} {
		if *t.own != "" {
			*t.to = *t.own
		}
	}
	if f.Overlap != 0 {
		out.Overlap = f.Overlap
	}
	out.Fused = out.Fused || f.Fused
	out.Rates = maps.Clone(base.Rates)
	if out.Rates == nil {
		out.Rates = map[string]fileRate{}
	}
	maps.Copy(out.Rates, f.Rates)
	return &out
}
