package cluster

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// sized returns two boxes of two devices each. Links inside have 10 GB/s and those between boxes 4 GB/s; a message of a
// megabyte reaches half of these bandwidths.
func sized(t *testing.T) *Cluster {
	t.Helper()
	c, err := Parse(strings.NewReader(`name: sized
device_types: {d: {memory: 1GB}}
device: d
levels:
  - {name: box, size: 2, bandwidth: 10GB/s, latency: 5us, half_size: 1MB,
     protocols: {quick: {latency: 1us, share: 0.25}, bulk: {start: 6us, latency: 3us, tree_latency: 20us, share: 1}}}
  - {name: net, size: 2, bandwidth: 4GB/s, latency: 10us, half_size: 1MB, uplinks: true,
     protocols: {quick: {latency: 4us, share: 0.5}, bulk: {start: 8us, latency: 7us, tree_latency: 2us, share: 1}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSmallMessagesReachLess: a message of the half size, one megabyte, reaches half of the bandwidth. A message of
// nine megabytes reaches 0.9 of it. A message of no bytes takes only the latency.
func TestSmallMessagesReachLess(t *testing.T) {
	c := sized(t)
	for bytes, want := range map[int64]float64{0: 0, 1e6: 1e6 / 5e9, 9e6: 9e6 / 9e9} {
		latency, taken := c.Transfer(0, 1, bytes)
		if math.Abs(latency-5e-6) > 1e-15 || math.Abs(taken-want) > 1e-15 {
			t.Errorf("%d bytes take %v + %v s, want 5e-6 + %v", bytes, latency, taken, want)
		}
	}
	if large, none := c.ByteS(0, 1), c.ByteS(1, 1); math.Abs(large-1e-10) > 1e-18 || none != 0 {
		t.Errorf("a byte of a large message takes %v s at 10 GB/s, and %v s from a device to itself", large, none)
	}
}

// TestTheFastestProtocolIsTaken: collectives use the fastest protocol for their number of bytes. The times are worked
// out by hand. Two devices of a box sum b bytes in a ring, with two messages of b/2 bytes. With protocol quick this
// takes 2*(1 us + b/2 / 2.5 GB/s). With protocol bulk it takes 6 us + 2*(3 us + b/2 / 10 GB/s). A gather has only one
// message of b/2 bytes. In a collective of both boxes, 3/4 of the bytes cross the links of 4 GB/s in each direction.
func TestTheFastestProtocolIsTaken(t *testing.T) {
	c := sized(t)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s takes %v s, want %v", what, got, want)
		}
	}
	two := []int{0, 1}
	near("a small sum", c.AllReduceS(two, 1000), 2*(1e-6+500/2.5e9))
	near("a large sum", c.AllReduceS(two, 1e6), 6e-6+2*(3e-6+5e5/1e10))
	near("a small ring", c.CollectiveS(two, 1000, AllReduce), 2*(1e-6+500/2.5e9))
	near("a small gather", c.CollectiveS(two, 1000, Gather), 1e-6+500/2.5e9)
	near("a large gather", c.CollectiveS(two, 1e6, Gather), 6e-6+3e-6+5e5/1e10)
	// The variables ring and tree below are times with protocol bulk. A ring of four devices has two edges inside boxes
	// and two between boxes, and a sum goes round the ring twice. A path of a tree has one edge inside a box and one
	// between boxes. Both edges have the latencies of trees.
	all := []int{0, 1, 2, 3}
	// With protocol quick, trees are faster than rings.
	near("quick rings over boxes", c.CollectiveS(all, 1000, AllReduce), 2*(0.75*1000/2e9+4e-6+1e-6))
	ring, tree := 8e-6+2*(0.75e8/4e9+2*3e-6+2*7e-6), 8e-6+2*(0.75e8/4e9+2e-6+20e-6)
	// In the hierarchy, two devices of a box sum first, and then each of them sums half of the bytes with the other box.
	levels := 8e-6 + 2*(0.5e8/10e9+3e-6) + 2*(0.25e8/2e9+7e-6)
	near("bulk over boxes", c.CollectiveS(all, 1e8, AllReduce), levels)
	if levels > min(ring, tree) {
		t.Errorf("a hierarchy takes %v, a ring %v, a tree %v: the case tells nothing of hierarchies", levels, ring, tree)
	}
	near("bulk gathers go by rings", c.CollectiveS(all, 1e8, Gather), 8e-6+0.75e8/4e9+2*3e-6+2*7e-6)

	// Here a collective has one device in each box, so it uses no link inside a box. The start of bulk inside a box,
	// now 1 s, does not matter. The start of bulk between boxes, 8 us, counts.
	c.Levels[0].Protocols[0].StartS = 1
	if p := c.Levels[0].Protocols[0]; p.Name != "bulk" {
		t.Fatal(p.Name)
	}
	near("a sum of one device a box", c.AllReduceS([]int{3, 1}, 1e8), 8e-6+2*(7e-6+0.5e8/4e9))
	half := 0.5 * 4e9 // the rate of half of a box's links, because half of its devices take part
	near("a gather of one device a box", c.CollectiveS([]int{1, 3}, 1e8, Gather), 8e-6+2*7e-6+0.5e8/half)
	c.Levels[0].Protocols[0].StartS = 6e-6
	// The latency of a node applies to messages. Collectives in the node have the latencies of their protocols.
	c.Nodes = []Node{{LatencyS: 50e-6}, {}}
	if latency, _ := c.Transfer(0, 1, 0); latency != 50e-6 {
		t.Errorf("a message in the node takes %v s", latency)
	}
	near("a small sum in the node", c.AllReduceS(two, 1000), 2*(1e-6+500/2.5e9))
	near("a small ring in the node", c.CollectiveS(two, 1000, AllReduce), 2*(1e-6+500/2.5e9))
	if latency, _ := c.AtBest().Transfer(0, 1, 0); latency != 1e-6 {
		t.Errorf("at best a message in the node takes %v s", latency)
	}

	g := Group{Size: 2, BandwidthBytesPerSecond: 10e9, LatencyS: 5e-6, Protocols: c.Levels[0].Protocols}
	near("a group's small sum", g.RingS(1000, 2), 2*(1e-6+500/2.5e9))
	near("a group's large gather", g.RingS(1e6, 1), 6e-6+3e-6+5e5/1e10)
}

// TestAtBestNothingTakesLonger: on the cluster of AtBest, messages and sums of any size take no longer than on the
// original.
func TestAtBestNothingTakesLonger(t *testing.T) {
	c := sized(t)
	best := c.AtBest()
	for _, bytes := range []int64{1, 1000, 30e3, 1e6, 1e9} {
		for _, devices := range [][]int{{0, 1}, {0, 2}, {0, 1, 2, 3}} {
			if got, most := best.AllReduceS(devices, bytes), c.AllReduceS(devices, bytes); got > most {
				t.Errorf("%d bytes of %v at best %v s, else %v", bytes, devices, got, most)
			}
			from, to := devices[0], devices[1]
			if got, most := best.TransferS(from, to, bytes), c.TransferS(from, to, bytes); got > most {
				t.Errorf("%d bytes to %v at best %v s, else %v", bytes, to, got, most)
			}
		}
	}
	if plain := hall(t, "uplinks: true"); plain.AtBest() != plain {
		t.Error("a cluster without sizes is another one at best")
	}
}

// TestProtocolsInFiles: half sizes and protocols, including those of groups, are the same after they are written and
// read. Wrong values are refused.
func TestProtocolsInFiles(t *testing.T) {
	c := sized(t)
	again, err := Parse(strings.NewReader(c.Text()))
	if err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%v\n%s", err, c.Text())
	}
	for part, want := range map[string]string{
		"half_size: 0MB":                                        "half_size",
		"protocols: {ll: {latency: 1us}}":                       "share is 0; it is the part of the bandwidth",
		"protocols: {ll: {latency: 1us, share: 1.5}}":           "share is 1.5",
		"protocols: {ll: {latency: 1, share: 1}}":               "ll: latency",
		"protocols: {ll: {latency: 1us, share: 1, start: 5GB}}": "ll: start",
	} {
		_, err := Parse(strings.NewReader("name: c\ndevice_types: {d: {memory: 1GB}}\ndevice: d\nlevels:\n" +
			"  - {name: l, size: 2, bandwidth: 1GB/s, " + part + "}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", part, err)
		}
	}
	_, err = Parse(strings.NewReader(strings.Replace(c.Text(), "quick", "other", 1)))
	if err == nil || !strings.Contains(err.Error(), "levels box and net have protocols [bulk other] and [bulk quick]") {
		t.Errorf("protocols that differ: %v", err)
	}
}

// tree returns two boxes, each with two PCIe switches of two devices. A device has 10 GB/s, the uplink of a switch 1
// GB/s, and the port of a box 4 GB/s.
func tree(t *testing.T) *Cluster {
	t.Helper()
	c, err := Parse(strings.NewReader(`name: tree
device_types: {d: {memory: 1GB}}
device: d
levels:
  - {name: switch, size: 2, bandwidth: 10GB/s, latency: 1us}
  - {name: box, size: 2, bandwidth: 1GB/s, latency: 2us, uplinks: true}
  - {name: net, size: 2, bandwidth: 4GB/s, latency: 4us, uplinks: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPCIeTreesShareUplinks: devices below one switch share its uplink, both to the other switch and out of the box. A
// message is as fast as the narrowest link on its path.
func TestPCIeTreesShareUplinks(t *testing.T) {
	c := tree(t)
	for to, want := range map[int]float64{1: 1e9 / 10e9, 2: 1, 4: 1} {
		if _, taken := c.Transfer(0, to, 1e9); taken != want {
			t.Errorf("a gigabyte from 0 to %d takes %v s, want %v", to, taken, want)
		}
	}
	shared := func(a, b [2]int) (n int) {
		for _, one := range c.Links(a[0], a[1]) {
			for _, other := range c.Links(b[0], b[1]) {
				if one == other {
					n++
				}
			}
		}
		return n
	}
	for _, of := range []struct {
		a, b [2]int
		want int
	}{
		{[2]int{0, 2}, [2]int{1, 3}, 2}, // up from one switch, down to the other
		{[2]int{0, 2}, [2]int{1, 4}, 1}, // both go up from one switch: one to another switch, one to the other box
		{[2]int{0, 4}, [2]int{2, 6}, 2}, // from two switches, but through the same ports of both boxes
		{[2]int{0, 1}, [2]int{1, 2}, 0}, // a transfer within a switch shares no link with others
		{[2]int{0, 2}, [2]int{3, 1}, 0}, // up and down are separate links
	} {
		if got := shared(of.a, of.b); got != of.want {
			t.Errorf("%v and %v share %d links, want %d", of.a, of.b, got, of.want)
		}
	}
	// In a collective of all eight devices, 7/8 of the bytes cross each uplink, at 1 GB/s. A collective of only one
	// device below each switch gets half of this rate, because the model assumes that the other devices run the same
	// collective at the same time. A collective within a box also crosses the uplinks of its switches.
	bytes := 8e9
	for _, of := range []struct {
		devices []int
		s       float64
	}{
		{[]int{0, 1, 2, 3, 4, 5, 6, 7}, 7.0/8*bytes/1e9 + 4*1e-6 + 4*4e-6},
		{[]int{0, 2, 4, 6}, 3.0/4*bytes/0.5e9 + 4*4e-6},
		{[]int{0, 4}, 1.0/2*bytes/0.5e9 + 2*4e-6},
		{[]int{0, 1, 2, 3}, 3.0/4*bytes/1e9 + 2*1e-6 + 2*2e-6},
		{[]int{0, 1}, 1.0/2*bytes/10e9 + 2*1e-6 - 1e-6},
	} {
		if got := c.CollectiveS(of.devices, bytes, Gather); math.Abs(got-of.s) > 1e-9 {
			t.Errorf("a gather of %v takes %v s, want %v", of.devices, got, of.s)
		}
	}
	// A ring of two devices in different boxes sends 2 messages of half of the bytes, each over uplinks of 1 GB/s.
	if got, want := c.AllReduceS([]int{0, 4}, 2e9), 2*(4e-6+1.0); math.Abs(got-want) > 1e-9 {
		t.Errorf("a sum of two takes %v s, want %v", got, want)
	}
}
