package cluster

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// typesFile describes the preset device types. In the file, a comment gives the source of every number.
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

// Types lists the device types that a file can name in "like".
func Types() []string { return slices.Sorted(maps.Keys(types)) }

// resolved returns the device type with missing values taken from its "like" preset.
func (d fileDeviceType) resolved() (fileDeviceType, error) {
	if d.Like == "" {
		return d, nil
	}
	out, ok := types[d.Like]
	if !ok {
		return d, fmt.Errorf("like: %w", registry.None("device type", d.Like, Types()))
	}
	for _, f := range []struct{ own, to *string }{{&d.Memory, &out.Memory}, {&d.MemoryBandwidth, &out.MemoryBandwidth}} {
		if *f.own != "" {
			*f.to = *f.own
		}
	}
	peaks := map[string]string{}
	maps.Copy(peaks, out.Peaks)
	maps.Copy(peaks, d.Peaks)
	if d.Peak != "" && d.Peaks["f32"] == "" {
		peaks["f32"] = d.Peak
	}
	if out.Peaks = peaks; peaks["f32"] != "" {
		out.Peak = d.Peak
	}
	if d.Kernels != nil {
		out.Kernels = d.Kernels.over(out.Kernels)
	}
	if d.FPGA != nil || d.Efficiency != nil {
		return d, fmt.Errorf("it has fpga or efficiency beside like: kernels say how fast its kernels are")
	}
	if d.PricePerHour != 0 {
		out.PricePerHour = d.PricePerHour
	}
	out.Tensor, out.TensorLink, out.SequenceParallel = d.Tensor, d.TensorLink, d.SequenceParallel
	return out, nil
}

// over returns the kernels f, with missing values taken from `base`. Rates are combined number by number. If f has a
// rate for fp8 products and base has none, that rate's missing numbers come from the combined rate of matmul.
func (f *fileKernels) over(base *fileKernels) *fileKernels {
	out := *base
	for _, t := range []struct{ own, to *string }{{&f.Launch, &out.Launch}, {&f.Layer, &out.Layer}, {&f.Step, &out.Step},
		{&f.Attention, &out.Attention}} {
		if *t.own != "" {
			*t.to = *t.own
		}
	}
	out.Overlap, out.Fused = first(f.Overlap, base.Overlap), first(f.Fused, base.Fused)
	out.Rates = map[string]fileRate{}
	maps.Copy(out.Rates, base.Rates)
	for kind, own := range f.Rates {
		of, ok := base.Rates[kind]
		if product := f.Rates[RateMatmul]; kind == RateFP8 && !ok {
			of = product.over(base.Rates[RateMatmul])
		}
		out.Rates[kind] = own.over(of)
	}
	return &out
}

// over returns the rate with missing values taken from `base`.
func (r fileRate) over(base fileRate) fileRate {
	return fileRate{Limit: first(r.Limit, base.Limit), HalfWidth: first(r.HalfWidth, base.HalfWidth),
		HalfRows: first(r.HalfRows, base.HalfRows)}
}

// first returns the file's own value, or else that of `base`, or nil if neither is given.
func first[T any](own, base *T) *T {
	if own != nil {
		return own
	}
	return base
}

// said returns the value, or zero if the file gives none.
func said[T any](own *T) (value T) {
	if own != nil {
		value = *own
	}
	return value
}
