package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// racks returns a cluster of two racks of three servers of four devices.
func racks(t *testing.T) *Cluster {
	t.Helper()
	c, err := Parse(strings.NewReader(`
name: racks
device_types: {a: {memory: 4GiB}, b: {memory: 8GiB}}
nodes: [{count: 3, device: a, memory: 2GiB}, {count: 3, device: b}]
levels: [{name: server, size: 4, bandwidth: 100GB/s}, {name: rack, size: 3, bandwidth: 10GB/s},
	{name: room, size: 2, bandwidth: 1GB/s}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWithCores: each group of workers shares the given number of cores, even if the hosts had other numbers.
func TestWithCores(t *testing.T) {
	h := Hosts{Process: Link{1e-6, 1e9, 0}, Network: Link{1e-3, 1e6, 0}, Types: map[string]DeviceType{"cpu": {}}}
	for host, cores := range []int{2, 1} {
		h.Members = append(h.Members, Member{Host: fmt.Sprint(host), Type: "cpu", Workers: 2, Cores: cores})
	}
	c, err := h.Cluster("c")
	if err != nil || c.CoresOf(0) != 2 || c.CoresOf(3) != 1 {
		t.Fatal(c, err)
	}
	if of := c.WithCores(3, 0); of.CoresOf(0) != 3 || of.CoresOf(3) != 3 || of.CorePool(3) != 1 || c.CoresOf(3) != 1 {
		t.Errorf("%+v of %+v", of, c)
	}
	if of := c.WithCores(3, 4); of.CoresOf(3) != 3 || of.CorePool(3) != 0 || of.AllCores() != 3 {
		t.Errorf("%+v", of)
	}
}

func TestFirstDevices(t *testing.T) {
	c := racks(t)
	for n, levels := range map[int]string{1: "1", 3: "3", 4: "4", 8: "2x4", 12: "3x4", 24: "2x3x4", 99: "2x3x4"} {
		first, err := c.First(n)
		if err != nil {
			t.Errorf("the first %d: %v", n, err)
			continue
		}
		if len(first.Devices) != min(n, 24) || first.shape() != levels ||
			!slices.Equal(first.Devices, c.Devices[:min(n, 24)]) {
			t.Errorf("the first %d are %d in levels %s, want %s", n, len(first.Devices), first.shape(), levels)
		}
		last := len(first.Devices) - 1
		if first.MemoryBytes(last) != c.MemoryBytes(last) ||
			last > 0 && first.TransferS(0, last, 1e9) != c.TransferS(0, last, 1e9) {
			t.Errorf("the first %d differ from themselves in the whole cluster", n)
		}
	}
	for n, want := range map[int]string{5: "4 and 8 are", 13: "12 and 24 are", 20: "12 and 24 are", 0: "give 1 to 24",
		-1: "give 1 to 24"} {
		if _, err := c.First(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the first %d: %v, want %q in it", n, err, want)
		}
	}
	if len(c.Devices) != 24 || c.Levels[1].Size != 3 {
		t.Error("the cluster itself changed")
	}
}

func TestLimitedMemory(t *testing.T) {
	c := racks(t).Limited(3 << 30)
	if c.MemoryBytes(0) != 2<<30 || c.MemoryBytes(12) != 3<<30 {
		t.Errorf("devices of 2 and 8 GiB, limited to 3, have %d and %d", c.MemoryBytes(0), c.MemoryBytes(12))
	}
	if free := c.Unlimited(); free.MemoryBytes(0) != 0 || free.MemoryBytes(12) != 0 {
		t.Error("devices without a limit have one")
	}
}

// TestHostsOfNoDevices: for an empty list of hosts, alike returns no sizes. FirstHosts returns no more devices than the
// hosts have.
func TestHostsOfNoDevices(t *testing.T) {
	if all := alike(nil); len(all) > 0 {
		t.Errorf("of no hosts: %v", all)
	}
	if all := FirstHosts([]int{2, 3}, 9); !slices.Equal(all, []int{2, 3}) {
		t.Errorf("of 9 of 5 devices: %v", all)
	}
	if all := FirstHosts([]int{2, 3}, 0); len(all) > 0 {
		t.Errorf("of no devices: %v", all)
	}
}
