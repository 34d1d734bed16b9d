package cluster

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/terminal"
)

const dappleA = `
name: dapple-a
device_types: {v100: {memory: 16GiB, peak: 15.7TFLOPS, memory_bandwidth: 900GB/s}, t4: {memory: 15GiB}}
device: v100
levels:
  - {name: server, size: 8, bandwidth: 130GB/s, latency: 5us}
  - {name: rack,   size: 2, bandwidth: 25Gbps,  latency: 30us, collective_bandwidth: 3GB/s, duplex: full}
`

func TestReadAndAsk(t *testing.T) {
	c, err := Parse(strings.NewReader(dappleA))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 16 || c.MemoryBytes(3) != 16<<30 {
		t.Errorf("%d devices with %d bytes", len(c.Devices), c.MemoryBytes(3))
	}
	near := func(got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12+1e-9*want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	near(c.TransferS(0, 7, 130e9), 1+5e-6)
	near(c.TransferS(0, 8, 3125e6), 1+30e-6)
	near(c.TransferS(4, 4, 1e9), 0)
	// Two devices in one server: a ring of two moves the bytes once over each link.
	near(c.AllReduceS([]int{0, 1}, 130e9), 1+2*5e-6)
	// One device in each server: only the rack's links carry bytes, at the bandwidth for collectives.
	near(c.AllReduceS([]int{0, 8}, 3e9), 1+2*30e-6)
	near(c.AllReduceS([]int{5}, 1e9), 0)
}

func TestNodesOverride(t *testing.T) {
	c, err := Parse(strings.NewReader(strings.Replace(dappleA, "device: v100", "device: v100\nnodes: [{device: "+
		"v100}, {device: t4}]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if c.Devices[7] != "v100" || c.Devices[8] != "t4" {
		t.Errorf("devices %v", c.Devices)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"bandwidth: 25Gbps", "bandwidth: 25", "has no unit"},
		{"size: 2", "size: 0", "size is 0"},
		{"size: 2", "size: 2.7", "size is 2.7; it must be a whole number"},
		{"device: v100", "device: a100", `type "a100"`},
		{"latency: 5us", "latancy: 5us", "unknown field"},
		{"device: v100", "devices: [v100, t4]", `field "devices" belongs in nodes`},
		{"duplex: full", "duplex: fall", "full or half"},
		{"memory: 16GiB", "memory: -16GiB", "memory is -16GiB; it cannot be negative"},
		{"memory: 16GiB", "memory: 0GiB", "memory is 0GiB; it must be over 0"},
		{"memory: 16GiB", "memory: 16", `device type v100: memory "16" has no unit`},
		{"peak: 15.7TFLOPS", "peak: 0TFLOPS", "peak is 0TFLOPS"},
		{"bandwidth: 25Gbps", "bandwidth: .nan", "no number"},
		{"latency: 5us", "latency: -5us", "latency is -5us"},
		{"bandwidth: 25Gbps", "bandwidth: .inf", "no number"},
		{"bandwidth: 25Gbps", "bandwidth: nanGbps", "no number"},
		{"bandwidth: 25Gbps", "bandwidth: 1" + strings.Repeat("0", 30) + "Gbps", "no hardware has that"},
		{"bandwidth: 25Gbps", "bandwidth: 0." + strings.Repeat("0", 30) + "1bps", "no hardware has that"},
		{"latency: 5us", "latency: 1" + strings.Repeat("0", 300) + "s", "no hardware has that"},
		{"latency: 5us", "latency: 1e3s", `"1e3s" has no unit that is known here, "e3s"; units are s ms us ns`},
		{"latency: 5us", "latency: 1..5us", "is not a number with a unit"},
		{"bandwidth: 130GB/s", "bandwidth: 130GB", "did you mean 130GB/s?"},
		{"bandwidth: 25Gbps", "bandwidth: 25Gb", "did you mean 25Gbps?"},
		{"memory: 16GiB", "memory: 9999999TiB", "over 4 EiB"},
		{"size: 2", "size: 65536", "its levels hold over 65536 devices"},
		{"size: 2", "size: 99999999999", "it must be 1 at least, and 65536 at most"},
		{"size: 2", "size: -2", "size is -2"},
		{"device: v100", "device: v100\ncores: -1", "cores is -1"},
		{"memory: 16GiB", "memory: 16GiB, efficiency: {linear: .nan}", "efficiency of linear is NaN"},
		{"memory: 16GiB", "memory: 16GiB, efficiency: {linear: -1}", "efficiency of linear is -1"},
		{"memory: 16GiB", "memory: 16GiB, efficiency: {linear: .inf}", "efficiency of linear is +Inf"},
		{"device: v100", "device: v100\nnodes: [{count: -1}]", "count is -1"},
		{"device: v100", "device: v100\nnodes: [{count: 2, latency: -1us}]", "latency is -1us"},
		{"levels:", "levels:" + strings.Repeat("\n  - {name: x, size: 1, bandwidth: 1GB/s}", 15), "17 levels; 16 at " +
			"most"},
		{"device: v100", "cores: 2", "device 0 has no type; name one of device_types (t4, v100)"},
		{"device: v100", "device: v100\nnodes: [{device: t4}]", "1 nodes of 8 devices"},
	} {
		_, err := Parse(strings.NewReader(strings.Replace(dappleA, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want it to say %q", c.to, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(dappleA)
	f.Add(boards)
	for _, name := range Presets() {
		text, err := presetFiles.ReadFile("presets/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Parse(strings.NewReader(text)); err == nil && len(c.Devices) > 1 {
			if n := len(c.Devices); !(c.TransferS(0, n-1, 1) >= 0) || !(c.AllReduceS([]int{0, n - 1}, 1) >= 0) ||
				len(c.Links(0, n-1)) == 0 {
				t.Error("time runs backwards, or there is no way")
			}
		}
	})
}

// FuzzParseBytes: a size that can be parsed is not negative, and its printed form parses to nearly the same number.
func FuzzParseBytes(f *testing.F) {
	for _, text := range []string{"16GiB", "1.5 MB", "0B", "512", "-1GiB", "4096 TiB", "1e3KB", "..B"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseBytes(text)
		if err != nil {
			return
		}
		printed := strings.ReplaceAll(terminal.Bytes(n), ",", "")
		m, err := ParseBytes(printed)
		if off := math.Abs(float64(m - n)); n < 0 || err != nil && !strings.ContainsAny(printed, "e") || err == nil &&
			off > float64(n)/150 {
			t.Errorf("%q is %d bytes, printed as %q, which is %d, %v", text, n, printed, m, err)
		}
	})
}

// TestRatesOfBits: rates may be given in bits per second, the unit of network cards, in either of its spellings.
func TestRatesOfBits(t *testing.T) {
	for text, want := range map[string]float64{"100Gbit/s": 12.5e9, "100Gbps": 12.5e9, "8 bit/s": 1, "1Mbit/s": 125e3} {
		if got, err := quantity(text, "bandwidth", rateUnits); err != nil || got != want {
			t.Errorf("%s is %v bytes a second (%v), want %v", text, got, err, want)
		}
	}
	if _, err := quantity("100GbiT/s", "bandwidth", rateUnits); err == nil {
		t.Error("a unit that is none was read")
	}
}

// TestTimesAreReadExactly: a time is read as the float64 nearest to the written number, so that --json prints that
// number.
func TestTimesAreReadExactly(t *testing.T) {
	for text, want := range map[string]float64{"5us": 5e-6, "50us": 50e-6, "3us": 3e-6, "701ns": 701e-9, "2.5ms": 2.5e-3} {
		if got, err := quantity(text, "latency", timeUnits); err != nil || got != want {
			t.Errorf("%s is %v, want %v, %v", text, got, want, err)
		}
	}
}
