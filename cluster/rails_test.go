package cluster

import (
	"math"
	"strings"
	"testing"
)

// hall is two racks of two servers of eight devices, each device with a port of 1 GB/s into its rack's switch.
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

// Of 16 ports of a rack 4 lead out of one that is oversubscribed four times: four devices in a row share each. A fifth
// of them is 3.2 ports, four that carry 0.8 of one.
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
		{[2]int{0, 16}, [2]int{4, 24}, false}, // the next four have another one
		{[2]int{0, 16}, [2]int{17, 1}, false}, // there and back
		{[2]int{0, 8}, [2]int{1, 9}, false},   // inside a rack each has a port
		{[2]int{0, 8}, [2]int{0, 16}, true},   // by the one port of device 0
	} {
		if got := meet(of.a, of.b); got != of.meet {
			t.Errorf("%v and %v share a link: %v", of.a, of.b, got)
		}
	}
}

// An all-reduce is by rings that leave a server over its eight ports and a rack over those it has, or by trees.
// 8 GB, 16 devices in each rack: each way 31/32 of them over 8 GB/s, or over the 2 GB/s of two ports, and 28 edges of a
// server and 4 of the hall. In trees four servers are 2 of the hall's edges deep, and 7 of a server's.
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
		if got, want := c.CollectiveS(all, 8e9, AllReduce), min(2*ring, tree); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("%s: a sum takes %v, want %v", between, got, want)
		}
	}
}

// Groups of four devices send over their four ports at once, and what is written reads back.
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
	if l := g.Levels[2]; l.Rails != 1 || l.BandwidthBytesPerSecond != 4e9 {
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

// A p4d has four interfaces of 12.5 GB/s: 16 GPUs of two sum 1 GB in 2 x 15/16 of it over 50 GB/s, and two trees'
// or rings' latencies; GPUs 0 and 1 share an interface, 0 and 2 do not.
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
	if got, want := c.CollectiveS(all, 1e9, AllReduce), min(tree, ring); math.Abs(got/want-1) > 1e-12 {
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

// A preset of another size has as many devices on a rail as it had: two on each of p4d's four, of eight. Three devices
// are on no whole number of them.
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
