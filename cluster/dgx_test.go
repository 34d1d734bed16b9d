package cluster

import "testing"

// TestPresetsOfTodayHave16Bits: the presets of current GPUs support planning in 16 bits, because their device types
// have kernels and 16-bit peaks.
func TestPresetsOfTodayHave16Bits(t *testing.T) {
	for name, bf16 := range map[string]float64{"dgx-a100": 312e12, "dgx-h100": 989.4e12, "dgx-h200": 989.4e12,
		"dgx-b200": 2250e12} {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		d := c.DeviceTypes[c.Devices[0]]
		if d.Kernels == nil || d.Peak("bf16") != bf16 || d.Peak("") <= 0 || d.Peak("") > bf16/4 {
			t.Errorf("%s: kernels %v, %v in bf16, %v in f32", name, d.Kernels != nil, d.Peak("bf16"), d.Peak(""))
		}
	}
}
