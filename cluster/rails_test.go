package cluster

import (
	"math"
	"strings"
	"testing"
)

// hall returns two racks of two servers of eight devices. Each device has a port of 1 GB/s into the switch of its
// rack.
func hall(t *testing.T, between string) *Cluster {
	t.Helper()
	c, err := Parse(strings.NewReader(`name: racks
device_types: {d: {memory: 1GB}}
device: d
levels:
  - {name: server, size: 8, bandwidth: 10GB/s, latency: 1us}
  - {name: rack, size: 2, bandwidth: 1GB/s, latency: 2us, rails: 8}
  - {name: hall, size: 2, bandwidth: 1GB/s, latency: 4us, ` + between + `}
`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOversubscribedRacksShareLinks: a rack has 16 ports. With an oversubscription of 4 it has 4 links out, each shared
// by four neighbouring devices. An oversubscription of 5 would give 3.2 links, which become four links with 0.8 of the
// bandwidth.
func TestOversubscribedRacksShareLinks(t *testing.T) {
	c := hall(t, "oversubscription: 4")
	if got := c.Levels[2]; got.Rails != 4 || got.BandwidthBytesPerSecond != 1e9 {
		t.Errorf("%+v", got)
	}
	fifth := hall(t, "oversubscription: 5").Levels[2]
	if fifth.Rails != 4 || math.Abs(fifth.BandwidthBytesPerSecond/0.8e9-1) > 1e-12 {
		t.Errorf("%+v", fifth)
	}
	meet := func(a, b [2]int) bool {
		for _, one := range c.Links(a[0], a[1]) {
			for _, other := range c.Links(b[0], b[1]) {
				if one == other {
					return true
				}
			}
		}
		return false
	}
	for _, of := range []struct {
		a, b [2]int
		meet bool
	}{
		{[2]int{0, 16}, [2]int{1, 24}, true},  // both leave rack 0 by its first link
		{[2]int{0, 16}, [2]int{4, 24}, false}, // the next four devices have another link
		{[2]int{0, 16}, [2]int{17, 1}, false}, // the two directions of a link are separate
		{[2]int{0, 8}, [2]int{1, 9}, false},   // inside a rack each device has its own port
		{[2]int{0, 8}, [2]int{0, 16}, true},   // both use the only port of device 0
	} {
		if got := meet(of.a, of.b); got != of.meet {
			t.Errorf("%v and %v share a link: %v", of.a, of.b, got)
		}
	}
}

// TestCollectivesOfOversubscribedRacks compares collectives of 8 GB among 32 devices with times worked out by hand. In
// each direction, 31/32 of the bytes cross the narrowest links. Usually the narrowest links are a server's eight ports,
// with 8 GB/s in all. If a rack has only two links out, these two are the narrowest, with 2 GB/s in all. A ring has 28
// edges inside servers and 4 edges of the hall. The longest path of a tree over four servers has 2 edges of the hall
// and 7 edges inside a server.
func TestCollectivesOfOversubscribedRacks(t *testing.T) {
	all := make([]int, 32)
	for i := range all {
		all[i] = i
	}
	for between, rate := range map[string]float64{"oversubscription: 1": 8e9, "oversubscription: 2": 8e9,
		"oversubscription: 8": 2e9, "rails: 2": 2e9} {
		c := hall(t, between)
		ring := 31./32*8e9/rate + 28*1e-6 + 4*4e-6
		tree := 2 * (31./32*8e9/rate + 2*4e-6 + 7*1e-6)
		if got := c.CollectiveS(all, 8e9, Gather); math.Abs(got/ring-1) > 1e-12 {
			t.Errorf("%s: a gather takes %v, want %v", between, got, ring)
		}
		// Rings of 8 devices with 10 GB/s, then of the two servers of a rack, then of the two racks with 4 us a message.
		levels := 2*(7./8*8e9/10e9+7*1e-6) + 2*(1./2*8e9/8e9+2e-6) + 2*(1./2*8e9/rate+4e-6)
		if got, want := c.CollectiveS(all, 8e9, AllReduce), min(2*ring, tree, levels); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("%s: a sum takes %v, want %v", between, got, want)
		}
	}
}

// TestGroupsAndFilesKeepRails: groups of four devices send over their four ports at once. Out of a rack, four devices
// share one of four links, which are then those of four groups. Rails are written to files, and impossible numbers of
// rails are refused.
func TestGroupsAndFilesKeepRails(t *testing.T) {
	c := hall(t, "oversubscription: 4")
	k := c.DeviceTypes["d"]
	k.Kernels = &Kernels{}
	c.DeviceTypes["d"] = k
	g, err := c.Grouped(4, false)
	if err != nil {
		t.Fatal(err)
	}
	if l := g.Levels[1]; l.Rails != 2 || l.BandwidthBytesPerSecond != 4e9 {
		t.Errorf("%+v", l)
	}
	if l := g.Levels[2]; l.Rails != 4 || l.BandwidthBytesPerSecond != 1e9 {
		t.Errorf("%+v", l)
	}
	if text := c.Levels[2].text(); !strings.Contains(text, "rails: 4") {
		t.Error(text)
	}
	for text, want := range map[string]string{"rails: 1.5": "rails is 1.5; it must be a whole number",
		"rails: 3":                "rails is 3, and a member has 16 devices",
		"rails: 2, uplinks: true": "choose one", "oversubscription: 0.5": "it is 1 to 1000",
		"oversubscription: 2, collective_bandwidth: 1GB/s": "choose one"} {
		_, err := Parse(strings.NewReader("name: n\ndevice_types: {d: {}}\ndevice: d\nlevels:\n" +
			"  - {name: a, size: 16, bandwidth: 1GB/s}\n  - {name: b, size: 2, bandwidth: 1GB/s, " + text + "}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestCloudsHaveRails: a p4d server has four interfaces of 12.5 GB/s. GPUs 0 and 1 share an interface; GPUs 0 and 2 do
// not. To sum 1 GB, the 16 GPUs of two servers make two passes over a tree or a ring. Each pass moves 15/16 GB at 50
// GB/s, and adds the latencies of its edges. A hierarchy first sums inside the servers, at 230 GB/s, and then moves 1/2
// GB twice between them; it is the fastest. Among all presets, only those of clouds have prices.
func TestCloudsHaveRails(t *testing.T) {
	c, err := Preset("aws-p4d-24xlarge")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]int, 16)
	for i := range all {
		all[i] = i
	}
	tree := 2 * (15./16*1e9/50e9 + 20e-6 + 7*3e-6)
	ring := 2 * (15./16*1e9/50e9 + 14*3e-6 + 2*20e-6)
	levels := 2*(7./8*1e9/230e9+7*3e-6) + 2*(1./2*1e9/50e9+20e-6)
	if levels > min(tree, ring) {
		t.Errorf("a hierarchy takes %v, a tree %v, a ring %v", levels, tree, ring)
	}
	if got, want := c.CollectiveS(all, 1e9, AllReduce), levels; math.Abs(got/want-1) > 1e-12 {
		t.Errorf("a sum takes %v, want %v", got, want)
	}
	if a, b, d := c.Links(0, 8), c.Links(1, 8), c.Links(2, 8); a[0] != b[0] || a[0] == d[0] {
		t.Errorf("%v, %v, %v", a, b, d)
	}
	for _, name := range Presets() {
		of, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if priced := of.DeviceTypes[of.Devices[0]].PricePerHour > 0; priced != (Origin(name) == "clouds") {
			t.Errorf("%s is of %s, and has a price: %v", name, Origin(name), priced)
		}
	}
}

// TestPresetsOfOtherSizesKeepDevicesOnARail: a preset of another size keeps its number of devices on each rail. In p4d,
// eight devices use four rails, so two share one. Three devices would need one and a half rails, which is refused.
func TestPresetsOfOtherSizesKeepDevicesOnARail(t *testing.T) {
	for size, want := range map[string]int{"2x8": 4, "2x2": 1, "3x6": 3, "4x16": 8} {
		c, err := Preset("aws-p4d-24xlarge:" + size)
		if err != nil || c.Levels[1].Rails != want {
			t.Errorf("%s: %+v, %v", size, c, err)
		}
	}
	want := `level efa has 4 rails for 8 devices, and 3 devices cannot share rails likewise`
	if _, err := Preset("aws-p4d-24xlarge:2x3"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}
