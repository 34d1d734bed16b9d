package cluster

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

const level = "\ndevice: d\nlevels: [{name: n, size: 2, bandwidth: 1GB/s}]\n"

// A device type of every key comes back as it was written.
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
	us := 1e-6 // as a quantity reads it
	want := DeviceType{MemoryBytes: 640e9, PeakFLOPS: 19.5e12, Peaks: map[string]float64{"f32": 19.5e12, "bf16": 312e12},
		MemoryBandwidthBytesPerSecond: 2e12, PricePerHour: 20,
		Group: &Group{Size: 8, SequenceParallel: true, BandwidthBytesPerSecond: 250e9, LatencyS: 2 * us},
		Kernels: &Kernels{LaunchS: 3 * us, LayerS: 10 * us, StepS: 1e-3, Overlap: 0.75, Flash: true, Fused: true,
			Rates: map[string]Rate{"matmul": {0.8, 100, 200}, "memory": {Limit: 0.9}}}}
	if got := c.DeviceTypes["d"]; !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	again, err := Parse(strings.NewReader(c.Text()))
	if err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%v: %s", err, c.Text())
	}
}

// A type that is like another has what that has, but for what it says itself.
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
		"like: a100":                                        "no device type \"a100\"",
		"peaks: {f64: 1TFLOPS}":                             `peaks has "f64"; precisions are f32, tf32, f16, bf16, fp8`,
		"kernels: {attention: quick}":                       `attention is "quick"; it is flash`,
		"kernels: {overlap: 2}":                             "overlap is 2; it is a part, 0 to 1",
		"kernels: {launch: 3}":                              "launch",
		"kernels: {rates: {conv: {}}}":                      `rates has "conv"`,
		"kernels: {rates: {memory: {}}}":                    "limit is over 0",
		"tensor: 8":                                         "tensor is 8; a group has 2 to 64 devices, a tensor_link",
		"price_per_hour: -1":                                "price_per_hour is -1",
		"like: h100, efficiency: {}, fpga: {dsp_slices: 1}": "beside like",
	} {
		_, err := Parse(strings.NewReader("name: c\ndevice_types: {d: {" + text + "}}" + level))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
