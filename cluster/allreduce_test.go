package cluster

import (
	"math"
	"strings"
	"testing"
)

func close(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12+1e-9*want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestAllReduceByHand uses two servers of four devices. Links inside a server have 100 B/s and a latency of 1 s, and
// links between servers have 10 B/s and 2 s. The times are worked out by hand for 80 bytes.
func TestAllReduceByHand(t *testing.T) {
	c := &Cluster{
		Devices: make([]string, 8),
		Levels: []Level{
			{Size: 4, BandwidthBytesPerSecond: 100, LatencyS: 1, FullDuplex: true},
			{Size: 2, BandwidthBytesPerSecond: 10, LatencyS: 2, FullDuplex: true},
		},
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	// Inside a server: 2*3 messages of 80/4 bytes. Between servers: each of four rails carries 2*1 messages of 20/2
	// bytes.
	close(t, "hierarchical", c.HierarchicalAllReduceS(all, 80), 6*(1+20.0/100)+2*(2+10.0/10))
	// A ring of eight devices takes 14 steps, each of 80/8 bytes. A step takes as long as its message between servers.
	// Four rings share the bytes, one on each rail. So a message between servers has 80/8/4 bytes.
	close(t, "ring", c.RingAllReduceS(all, 80), 14*(2+2.5/10))
	close(t, "the faster", c.AllReduceS(all, 80), 6*1.2+6)
	c.Levels[1].Uplinks = true // a server's one link carries 2 messages of 80/2 bytes (hierarchy), or 14 of 80/8 (ring)
	close(t, "hierarchical over uplinks", c.HierarchicalAllReduceS(all, 80), 6*(1+20.0/100)+2*(2+40.0/10))
	close(t, "ring over uplinks", c.RingAllReduceS(all, 80), 14*(2+10.0/10))
	c.Levels[1].Uplinks = false
	c.Levels[1].CollectiveBandwidthBytesPerSecond = 20 // the total over all rails
	close(t, "ring at a measured bandwidth", c.RingAllReduceS(all, 80), 14*(2+10.0/20))
	c.Levels[1].CollectiveBandwidthBytesPerSecond = 0
	// Uneven: three devices in one server, and one in the other.
	close(t, "uneven ring", c.RingAllReduceS([]int{4, 0, 2, 1}, 80), 6*(2+20.0/10))
	close(t, "uneven hierarchy", c.HierarchicalAllReduceS([]int{4, 0, 2, 1}, 80), 4*(1+80.0/3/100)+2*(2+40.0/10))
	// Within one server, the hierarchical algorithm is a ring too.
	close(t, "one level", c.AllReduceS([]int{1, 2, 3}, 90), c.RingAllReduceS([]int{1, 2, 3}, 90))
	close(t, "nobody", c.AllReduceS(nil, 90), 0)
	c.Levels[0].Shared = true // in each ring step, all four messages wait for the same link
	close(t, "bus", c.AllReduceS([]int{0, 1, 2, 3}, 80), 6*(1+80.0/100))
	close(t, "bus as a ring", c.RingAllReduceS([]int{0, 1, 2, 3}, 80), 6*(1+80.0/100))
}

// TestEveryRailIsUsed uses dgx-h100: eight GPUs on NVLink at 450 GB/s and 5 us. Each GPU has a rail of 50 GB/s and 10
// us. The times are worked out by hand for 1 GB among 16 GPUs.
func TestEveryRailIsUsed(t *testing.T) {
	c, err := Preset("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]int, 16)
	for i := range all {
		all[i] = i
	}
	const GB = 1_000_000_000
	// Inside a server, each GPU sends 14 messages of 1/8 of the bytes: 7 to sum the eighths, and 7 to gather the
	// results. In between, each GPU sums its eighth with the same eighth of the other server, in 2 messages over its
	// own rail.
	close(t, "hierarchical", c.HierarchicalAllReduceS(all, GB), 14*(5e-6+GB/8/450e9)+2*(10e-6+GB/8/2/50e9))
	// A ring of 16 GPUs takes 30 steps, each of 1/16 of the bytes. The eight rails share the bytes of a step.
	close(t, "ring", c.AllReduceS(all, GB), 30*(10e-6+GB/16./8/50e9))
	// A single uplink with the bandwidth of all eight rails gives the same time.
	one := *c
	one.Levels = append([]Level(nil), c.Levels...)
	one.Levels[1].Uplinks, one.Levels[1].BandwidthBytesPerSecond = true, 400e9
	close(t, "one uplink of 400 GB/s", one.AllReduceS(all, GB), c.AllReduceS(all, GB))
	// Three GPUs of one server and one GPU of the other: the rail of that one GPU carries all bytes.
	close(t, "uneven", c.HierarchicalAllReduceS([]int{0, 1, 2, 9}, GB), 4*(5e-6+GB/3./450e9)+2*(10e-6+GB/2/50e9))
}

// TestRailsBehindUplinks uses two racks, each of two servers of four devices. Each server has an uplink into its rack,
// and each rack has two rails to the other.
func TestRailsBehindUplinks(t *testing.T) {
	c := &Cluster{
		Devices: make([]string, 16),
		Levels: []Level{
			{Size: 4, BandwidthBytesPerSecond: 100, FullDuplex: true},
			{Size: 2, BandwidthBytesPerSecond: 10, FullDuplex: true, Uplinks: true},
			{Size: 2, BandwidthBytesPerSecond: 5, FullDuplex: true},
		},
	}
	all := make([]int, 16)
	for i := range all {
		all[i] = i
	}
	close(t, "hierarchical", c.HierarchicalAllReduceS(all, 80), 6*20.0/100+2*40.0/10+2*20.0/5)
	// An uplink carries 5 bytes in each step, and each of two rails half of them.
	close(t, "ring", c.RingAllReduceS(all, 80), 30*5.0/10)
}

func TestLinksByHand(t *testing.T) {
	c, err := Preset("dapple-a")
	if err != nil {
		t.Fatal(err)
	}
	shares := func(a, b [2]int) bool {
		for _, x := range c.Links(a[0], a[1]) {
			for _, y := range c.Links(b[0], b[1]) {
				if x == y {
					return true
				}
			}
		}
		return false
	}
	for _, k := range []struct {
		a, b [2]int
		want bool
		why  string
	}{
		{[2]int{0, 8}, [2]int{7, 15}, true, "both leave server 0"},
		{[2]int{0, 8}, [2]int{8, 0}, false, "full duplex"},
		{[2]int{0, 1}, [2]int{0, 8}, false, "NVLink and Ethernet"},
		{[2]int{0, 1}, [2]int{0, 2}, false, "pairs inside a server have their own"},
	} {
		if got := shares(k.a, k.b); got != k.want {
			t.Errorf("%v and %v share a link: %v, want %v: %s", k.a, k.b, got, k.want, k.why)
		}
	}
}

func TestPresets(t *testing.T) {
	if len(Presets()) < 16 {
		t.Errorf("%d presets", len(Presets()))
	}
	for _, name := range Presets() {
		c, err := Read(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Name != name {
			t.Errorf("preset %s is named %s", name, c.Name)
		}
		for kind, d := range c.DeviceTypes {
			if d.PeakFLOPS <= 0 || d.MemoryBandwidthBytesPerSecond <= 0 {
				t.Errorf("%s: %s lacks a peak or a memory bandwidth", name, kind)
			}
		}
	}
	c, err := Preset("dapple-a:4x8")
	if err != nil || len(c.Devices) != 32 || c.Levels[0].Size != 8 {
		t.Errorf("%v, %v", c, err)
	}
	for name, want := range map[string]string{
		"dapple-d":   "did you mean dapple-a or dapple-b or dapple-c?",
		"dapple-a:8": "it has 2 levels: give a size for each, like 2x8", "dapple-a:4x0": "is no number of members",
		"workshop-3090-4090:2x2": "its nodes differ",
	} {
		if _, err := Read(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", name, err, want)
		}
	}
}

// TestBoards computes the peak of an FPGA board by hand: 6840 slices x 2 x 300 MHz = 4.104 TFLOPS (BaPipe, Table V).
func TestBoards(t *testing.T) {
	c, err := Preset("bapipe-2xvcu129-2xvcu118")
	if err != nil {
		t.Fatal(err)
	}
	close(t, "peak", c.DeviceTypes["vcu118"].PeakFLOPS, 4.104e12)
	close(t, "peak", c.DeviceTypes["vcu129"].PeakFLOPS, 7.3728e12)
	close(t, "on chip, in Mb", math.Round(float64(c.DeviceTypes["vcu118"].OnChipBytes())*80/(1<<20))/10, 345.9)
	if strings.Join(c.Devices, " ") != "vcu129 vcu129 vcu118 vcu118" {
		t.Errorf("%v", c.Devices)
	}
}

const boards = `
name: b
device_types: {f: {memory_bandwidth: 40GB/s, fpga: {dsp_slices: 10, clock: 1MHz, on_chip: 1MiB}}}
device: f
nodes: [{count: 2, memory: 1GiB, bandwidth: 5GB/s, latency: 1ms}, {memory: 2GiB}]
levels: [{name: box, size: 2, bandwidth: 1GB/s, latency: 1us}, {name: room, size: 3, bandwidth: 1Gbps}]
`

func TestNodesOfTheirOwn(t *testing.T) {
	c, err := Parse(strings.NewReader(boards))
	if err != nil {
		t.Fatal(err)
	}
	if c.MemoryBytes(3) != 1<<30 || c.MemoryBytes(4) != 2<<30 || c.Unlimited().MemoryBytes(4) != 0 {
		t.Errorf("memory %d, %d", c.MemoryBytes(3), c.MemoryBytes(4))
	}
	close(t, "inside a node with links of its own", c.TransferS(2, 3, 5e9), 1+1e-3)
	close(t, "inside another", c.TransferS(4, 5, 1e9), 1+1e-6)
	close(t, "between", c.TransferS(1, 2, 125e6), 1)
}

func TestBoardRefusals(t *testing.T) {
	for _, k := range []struct{ from, to, want string }{
		{"dsp_slices: 10", "dsp_slices: 0", "dsp_slices is 0"},
		{"clock: 1MHz", "clock: 1", "has no unit"},
		{"clock: 1MHz", "clock: 0MHz", "must be over 0"},
		{"clock: 1MHz", "clock: -1MHz", "cannot be negative"},
		{"clock: 1MHz", "clock: .nan", "no number"},
		{"clock: 1MHz", "clock: 1MHz, flops_per_slice: .nan", "flops_per_slice is NaN"},
		{"clock: 1MHz", "clock: 1MHz, flops_per_slice: -2", "flops_per_slice is -2"},
		{"clock: 1MHz", "clock: 1MHz, transceivers: [{name: g, lanes: -1, rate: 1Gbps}]", "lanes is -1"},
		{"clock: 1MHz", "clock: 1MHz, transceivers: [{name: g, lanes: 1, rate: -1Gbps}]", "cannot be negative"},
		{"dsp_slices: 10", "dsp_slices: -10", "dsp_slices is -10"},
		{"on_chip: 1MiB", "on_chip: -1MiB", "cannot be negative"},
		{"f: {memory", "f: {peak: 1TFLOPS, memory", "both peak and fpga"},
		{"count: 2", "count: 7", "8 nodes of 2 devices"},
		{"count: 2", "devices: [f], count: 2", "lists 1 devices"},
		{"count: 2", "device: f, devices: [f, f], count: 2", "both device and devices"},
		{"bandwidth: 1Gbps", "bandwidth: 1Gbps, shared: true, uplinks: true", "choose one"},
		{"bandwidth: 1Gbps", "bandwidth: 1Gbps, collective_bandwidth: 0GB/s", "must be over 0"},
		{"bandwidth: 5GB/s", "bandwidth: 0GB/s", "node 0: bandwidth is 0GB/s"},
	} {
		_, err := Parse(strings.NewReader(strings.Replace(boards, k.from, k.to, 1)))
		if err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%q: got %v, want it to say %q", k.to, err, k.want)
		}
	}
}
