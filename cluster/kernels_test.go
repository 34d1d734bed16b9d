package cluster

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

const level = "\ndevice: d\nlevels: [{name: n, size: 2, bandwidth: 1GB/s}]\n"

// TestKernelsAreReadAndWritten: a device type with kernels and a tensor-parallel group is the same after it is written
// and read.
func TestKernelsAreReadAndWritten(t *testing.T) {
	text := `name: c
device_types:
  d: {memory: 80GB, peaks: {f32: 19.5TFLOPS, bf16: 312TFLOPS}, memory_bandwidth: 2TB/s, price_per_hour: 2.5,
    kernels: {launch: 3us, layer: 10us, step: 1ms, overlap: 0.75, attention: flash, fused: true,
      rates: {matmul: {limit: 0.8, half_width: 100, half_rows: 200}, memory: {limit: 0.9}}},
    tensor: 8, tensor_link: {bandwidth: 250GB/s, latency: 2us}, sequence_parallel: true}` + level
	c, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := DeviceType{MemoryBytes: 640e9, PeakFLOPS: 19.5e12, Peaks: map[string]float64{"f32": 19.5e12, "bf16": 312e12},
		MemoryBandwidthBytesPerSecond: 2e12, PricePerHour: 20,
		Group: &Group{Size: 8, SequenceParallel: true, BandwidthBytesPerSecond: 250e9, LatencyS: 2e-6},
		Kernels: &Kernels{LaunchS: 3e-6, LayerS: 10e-6, StepS: 1e-3, Overlap: 0.75, Flash: true, Fused: true,
			Rates: map[string]Rate{"matmul": {0.8, 100, 200}, "memory": {Limit: 0.9}}}}
	if got := c.DeviceTypes["d"]; !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	again, err := Parse(strings.NewReader(c.Text()))
	if err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%v: %s", err, c.Text())
	}
}

// TestLike: a device type with `like: NAME` has the fields of type NAME, except those that it sets itself.
func TestLike(t *testing.T) {
	c, err := Parse(strings.NewReader(`name: c
device_types: {d: {like: a100-80gb, memory: 70GB, peaks: {f16: 300TFLOPS}, kernels: {rates: {memory: {limit: 0.5}}}}}` +
		level))
	if err != nil {
		t.Fatal(err)
	}
	d := c.DeviceTypes["d"]
	if d.MemoryBytes != 70e9 || d.Peak("f16") != 300e12 || d.Peak("bf16") != 312e12 || d.Peak("") != 19.5e12 ||
		d.Peak("fp8") != 0 || d.Kernels.Rate("memory").Limit != 0.5 || d.Kernels.Rate("matmul").Limit != 0.85 {
		t.Errorf("%+v %+v", d, d.Kernels)
	}
	for _, name := range Types() {
		c, err := Parse(strings.NewReader("name: c\ndevice_types: {d: {like: " + name + "}}" + level))
		if err != nil || c.DeviceTypes["d"].Kernels == nil || c.DeviceTypes["d"].Peak("") == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLikeIsChangedByWhatIsSaid: a device type with `like: NAME` changes only the fields that it gives, even if it
// gives zero or false. Each number of a rate is replaced separately. The peak of single precision can be given under
// either of its names.
func TestLikeIsChangedByWhatIsSaid(t *testing.T) {
	one := func(text string) DeviceType {
		t.Helper()
		c, err := Parse(strings.NewReader("name: c\ndevice_types: {d: {" + text + "}}" + level))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return c.DeviceTypes["d"]
	}
	for text, change := range map[string]func(d *DeviceType){
		"peak: 1TFLOPS":                              func(d *DeviceType) { d.PeakFLOPS, d.Peaks["f32"] = 1e12, 1e12 },
		"peaks: {f32: 1TFLOPS}":                      func(d *DeviceType) { d.PeakFLOPS, d.Peaks["f32"] = 1e12, 1e12 },
		"kernels: {overlap: 0}":                      func(d *DeviceType) { d.Kernels.Overlap = 0 },
		"kernels: {fused: true}":                     func(d *DeviceType) { d.Kernels.Fused = true },
		"kernels: {attention: unfused, launch: 0us}": func(d *DeviceType) { d.Kernels.Flash, d.Kernels.LaunchS = false, 0 },
		"kernels: {rates: {matmul: {limit: 0.9}}}":   func(d *DeviceType) { d.Kernels.Rates["matmul"] = Rate{0.9, 128, 256} },
		"kernels: {rates: {matmul: {half_rows: 0}}}": func(d *DeviceType) { d.Kernels.Rates["matmul"] = Rate{0.85, 128, 0} },
		"kernels: {rates: {matmul: {half_width: 1}, matmul_fp8: {limit: 0.6}}}": func(d *DeviceType) {
			d.Kernels.Rates["matmul"], d.Kernels.Rates["matmul_fp8"] = Rate{0.85, 1, 256}, Rate{0.6, 1, 256}
		},
	} {
		want := one("like: a100-80gb")
		change(&want)
		if got := one("like: a100-80gb, " + text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v %+v, want\n%+v %+v", text, got, got.Kernels, want, want.Kernels)
		}
	}
	if d := one("like: a100-80gb, peak: 1TFLOPS"); d.Peak("") != 1e12 || d.Peak("f32") != 1e12 {
		t.Errorf("peak is %v and %v", d.Peak(""), d.Peak("f32"))
	}
	if again := one("like: a100-80gb"); again.Peak("f32") != 19.5e12 || again.Kernels.Overlap != 0.8 {
		t.Errorf("the preset itself has changed: %+v %+v", again, again.Kernels)
	}
	// No preset sets fused to true, so false is tested against a file's kernels instead.
	yes, no := true, false
	if out := (&fileKernels{Fused: &no}).over(&fileKernels{Fused: &yes}); said(out.Fused) {
		t.Error("fused: false changes nothing")
	}
}

func TestRatesByHand(t *testing.T) {
	r := Rate{Limit: 0.8, HalfWidth: 100, HalfRows: 300}
	for _, k := range []struct{ width, rows, want float64 }{{100, 300, 0.2}, {300, 0, 0.6}, {0, 0, 0.8}} {
		if got := r.At(k.width, k.rows); math.Abs(got-k.want) > 1e-12 {
			t.Errorf("%v x %v: %v, want %v", k.width, k.rows, got, k.want)
		}
	}
}

func TestKernelRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"like: a100":                                        "no device type \"a100\"; did you mean a100-40gb or a100-80gb?",
		"peaks: {f64: 1TFLOPS}":                             `peaks has "f64"; precisions are f32, tf32, f16, bf16, fp8`,
		"kernels: {attention: quick}":                       `attention is "quick"; it is flash`,
		"kernels: {overlap: 2}":                             "overlap is 2; it is a part, 0 to 1",
		"kernels: {launch: 3}":                              "launch",
		"kernels: {rates: {conv: {}}}":                      `rates has "conv"`,
		"kernels: {rates: {memory: {}}}":                    "limit is over 0",
		"tensor: 8":                                         "tensor is 8; a group has 2 to 64 devices, a tensor_link",
		"peak: 1TFLOPS, peaks: {f32: 2TFLOPS}":              "peak is 1TFLOPS and peaks: f32 is 2TFLOPS; both",
		"like: h100, price_per_hour: -1":                    "price_per_hour is -1",
		"price_per_hour: -1":                                "price_per_hour is -1",
		"like: h100, efficiency: {}, fpga: {dsp_slices: 1}": "beside like",
	} {
		_, err := Parse(strings.NewReader("name: c\ndevice_types: {d: {" + text + "}}" + level))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
