package cluster

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestGroupsByHand divides two nodes of eight devices into groups of four, so that each node becomes two devices. Each
// of the new devices has the memory and price of four, and sends over four links at once.
func TestGroupsByHand(t *testing.T) {
	c, err := Preset("dgx-a100")
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Grouped(4, true)
	if err != nil {
		t.Fatal(err)
	}
	d := g.DeviceTypes["a100"]
	if len(g.Devices) != 4 || g.Levels[0].Size != 2 || g.Levels[1].Size != 2 || d.MemoryBytes != 320e9 ||
		!reflect.DeepEqual(*d.Group, Group{4, true, 230e9, c.Levels[0].LatencyS, c.Levels[0].Protocols}) {
		t.Errorf("%+v, group %+v", g, d.Group)
	}
	for pair, want := range map[[2]int]float64{{0, 1}: 1200e9, {1, 2}: 100e9} {
		if _, s := g.Transfer(pair[0], pair[1], 1e9); math.Abs(s-1e9/want) > 1e-12 {
			t.Errorf("a gigabyte from %v takes %v s", pair, s)
		}
	}
	again, err := Parse(strings.NewReader(g.Text()))
	if err != nil || again.DeviceTypes["a100"].MemoryBytes != 320e9 ||
		!reflect.DeepEqual(again.DeviceTypes["a100"].Group, d.Group) {
		t.Errorf("%v\n%s", err, g.Text())
	}
	for size, want := range map[int]string{3: "divide it", 128: "divide it", 16: "divide it"} {
		if _, err := c.Grouped(size, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("groups of %d: %v", size, err)
		}
	}
	bare, err := Preset("dapple-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bare.Grouped(2, false); err == nil || !strings.Contains(err.Error(), "has no kernels") {
		t.Errorf("without kernels: %v", err)
	}
}

// TestPartsOfAGroupsMessageAreSmall: a message between groups of four is sent in four parts, over four links at once.
// It takes as long as one part alone. If a node of eight devices has only four rails, a group of four has two of them,
// and each rail carries two parts together.
func TestPartsOfAGroupsMessageAreSmall(t *testing.T) {
	c, err := Preset("dgx-a100")
	if err != nil {
		t.Fatal(err)
	}
	for rails, each := range map[int]float64{0: 2e6, 8: 2e6, 4: 4e6} {
		c = c.Copied()
		c.Levels[1].HalfBytes, c.Levels[1].Rails = 1e6, rails
		g, err := c.Grouped(4, true)
		if err != nil {
			t.Fatal(err)
		}
		_, part := c.Transfer(0, 8, int64(each))
		if _, s := g.Transfer(0, 2, 8e6); math.Abs(part-(each+1e6)/25e9) > 1e-15 || math.Abs(s-part) > 1e-15 {
			t.Errorf("%d rails: a group's message takes %v s, a rail's part of it alone %v", rails, s, part)
		}
	}
}

// TestCollectivesByHand uses two nodes of eight devices. Links inside a node have 230 GB/s and 3 us, and the links out
// of a node have 160 GB/s and 10 us.
func TestCollectivesByHand(t *testing.T) {
	c, err := Preset("dgx-a100")
	if err != nil {
		t.Fatal(err)
	}
	all := func(from, to, step int) (devices []int) {
		for d := from; d < to; d += step {
			devices = append(devices, d)
		}
		return devices
	}
	for _, k := range []struct {
		name    string
		devices []int
		what    Collective
		want    float64
	}{
		{"a node gathers", all(0, 8, 1), Gather, 7./8*1e9/230e9 + 7*3e-6},
		{"a node sums", all(0, 8, 1), AllReduce, 2 * (7./8*1e9/230e9 + 7*3e-6)},
		{"both gather", all(0, 16, 1), Gather, 15./16*1e9/160e9 + 14*3e-6 + 2*10e-6},
		{"both sum, by trees", all(0, 16, 1), AllReduce, 2 * (15./16*1e9/160e9 + 1*10e-6 + 7*3e-6)},
		{"a device of each has an eighth of the way out", all(0, 16, 8), Gather, 1./2*1e9/20e9 + 2*10e-6},
		{"one", all(0, 1, 1), AllReduce, 0},
	} {
		if got := c.CollectiveS(k.devices, 1e9, k.what); math.Abs(got-k.want) > 1e-9 {
			t.Errorf("%s: %v s, want %v", k.name, got, k.want)
		}
	}
}
