package cluster

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestWhatIsWrittenIsRead: every preset, and hosts with random figures, are the same after they are written and read.
func TestWhatIsWrittenIsRead(t *testing.T) {
	var all []*Cluster
	for _, name := range Presets() {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	g := rand.New(rand.NewPCG(1, 9))
	link := func() Link { return Link{g.Float64() / 100, g.Float64() * 1e10, g.Float64() * 1e9} }
	for range 50 {
		h := Hosts{Process: link(), Host: link(), Network: link(), Types: map[string]DeviceType{
			"a b": {MemoryBytes: g.Int64N(1 << 40), PeakFLOPS: g.Float64() * 1e13,
				Efficiency: map[string]float64{"conv2d": 0.1 + g.Float64()}},
			"yes": {}}}
		each := 1 + g.IntN(3)
		for host := range 1 + g.IntN(3) {
			for range 1 + g.IntN(2) {
				h.Members = append(h.Members, Member{Host: fmt.Sprint(host), Type: []string{"a b", "yes"}[g.IntN(2)],
					Workers: each, Cores: 1 + g.IntN(2)})
			}
		}
		c, err := h.Cluster("these hosts")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	dir := t.TempDir()
	for i, c := range all {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := c.Write(path); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s (%v):\n%s\n%+v, want\n%+v", c.Name, err, c.Text(), got, c)
		}
	}
}

func TestMeasuredFiguresAreShort(t *testing.T) {
	for v, want := range map[float64]string{3123456789.123: "3.12GB/s", 6.254e6: "6.25MB/s", 0.5: "0.5B/s",
		999.9e3: "1000KB/s"} {
		if got := short(v, rateUnits[:5]); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{23.1234e-6: "23.1us", 2: "2s", 0.5: "500ms", 3e-9: "3ns", 0: "0ns"} {
		if got := short(v, timeUnits); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
	g := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		l := Link{g.Float64() / 1000, g.Float64() * 1e10, 0}.Rounded()
		for _, text := range []string{inUnits(l.LatencyS, timeUnits), inUnits(l.BandwidthBytesPerSecond, rateUnits)} {
			if len(text) > len("0.123GB/s") {
				t.Errorf("%+v is written %s", l, text)
			}
		}
	}
}

// TestHosts: a level of size 1 is left out unless it is the only level. The workers of a process share its cores, and
// the processes of a host share its network link.
func TestHosts(t *testing.T) {
	h := func(hosts, processes, workers int) *Hosts {
		h := &Hosts{Process: Link{1e-6, 1e10, 0}, Host: Link{1e-5, 1e9, 0}, Network: Link{1e-4, 1e8, 0},
			Types: map[string]DeviceType{"cpu": {}, "slow": {}}}
		for host := range hosts {
			for range processes {
				h.Members = append(h.Members, Member{Host: fmt.Sprint(host), Type: "cpu", Workers: workers, Cores: 2})
			}
		}
		return h
	}
	for _, k := range []struct {
		hosts, processes, workers int
		want                      string
	}{
		{1, 1, 1, "network 1"}, {1, 1, 4, "process 4"}, {1, 2, 1, "host 2"}, {2, 1, 1, "network 2"},
		{2, 1, 3, "process 3, network 2 uplinks"}, {2, 2, 1, "host 2, network 2 uplinks"},
		{3, 2, 2, "process 2, host 2, network 3 uplinks"},
	} {
		c, err := h(k.hosts, k.processes, k.workers).Cluster("c")
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, l := range c.Levels {
			text := fmt.Sprint(l.Name, " ", l.Size)
			if l.Uplinks {
				text += " uplinks"
			}
			said = append(said, text)
		}
		if got := strings.Join(said, ", "); got != k.want || len(c.Devices) != k.hosts*k.processes*k.workers {
			t.Errorf("%v: %s on %d devices", k, got, len(c.Devices))
		}
		if shares := c.SharesCores(); shares != (k.workers > 1) {
			t.Errorf("%v: shares cores %v", k, shares)
		}
	}
	for n, want := range map[int][]int{1: {4, 4, 4}, 2: {8, 8, 8}} {
		c, err := h(3, 2*n, 2).Cluster("c")
		if err != nil || !slices.Equal(c.HostSizes(), want) || !slices.Equal(c.PerHost, want[:1]) {
			t.Errorf("hosts of %d processes of 2 workers: %v as %v, %v", 2*n, c.HostSizes(), c.PerHost, err)
		}
	}
	odd := h(2, 2, 2)
	odd.Members = odd.Members[:3]
	odd.Members[2].Type, odd.Members[2].Cores = "slow", 1
	c, err := odd.Cluster("odd")
	if err != nil {
		t.Fatal(err)
	}
	if c.Levels[1].Size != 3 || c.Levels[1].LatencyS != 1e-4 || c.CoresOf(0) != 2 || c.CoresOf(5) != 1 ||
		c.Devices[5] != "slow" || !slices.Equal(c.HostSizes(), []int{4, 2}) {
		t.Errorf("%+v", c)
	}
	for want, change := range map[string]func(h *Hosts){
		"has no members":                    func(h *Hosts) { h.Members = nil },
		"process 1 has 3 workers":           func(h *Hosts) { h.Members[1].Workers = 3 },
		"process 1 is of device type \"x\"": func(h *Hosts) { h.Members[1].Type = "x" },
	} {
		wrong := h(2, 1, 1)
		change(wrong)
		if _, err := wrong.Cluster("c"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestWhereHostsEnd: hosts end where a file says, or where the innermost level's groups end. This also holds for the
// first devices of a cluster and for presets of other sizes.
func TestWhereHostsEnd(t *testing.T) {
	read := func(hosts, levels string) (*Cluster, error) {
		return Parse(strings.NewReader("name: c\ndevice_types: {cpu: {}}\ndevice: cpu\n" + hosts + "\nlevels: [" + levels +
			"]"))
	}
	const link = ", bandwidth: 1GB/s, latency: 1us}"
	const four, process = "{name: rack, size: 4" + link, "{name: process, size: 2, one_memory: true" + link
	const two = process + ", {name: rack, size: 2" + link
	for _, k := range []struct {
		hosts, levels string
		first         int
		want          []int
		refused       string
	}{
		{"", four, 4, []int{4}, ""},
		{"", two, 4, []int{2, 2}, ""},
		{"", two, 2, []int{2}, ""},
		{"devices_per_host: [1]", four, 4, []int{1, 1, 1, 1}, ""},
		{"devices_per_host: [1]", four, 3, []int{1, 1, 1}, ""},
		{"devices_per_host: [2]", four, 3, []int{2, 1}, ""},
		{"devices_per_host: [1, 3]", four, 4, []int{1, 3}, ""},
		{"devices_per_host: [1, 3]", four, 2, []int{1, 1}, ""},
		{"devices_per_host: [4]", two, 4, []int{4}, ""},
		{"devices_per_host: [3]", four, 4, nil, "devices_per_host is [3], for 4 devices; give one number that divides them"},
		{"devices_per_host: [1, 2]", four, 4, nil, "devices_per_host is [1 2], for 4 devices"},
		{"devices_per_host: [5, -1]", four, 4, nil, "host 0 has 5 devices; it must be 1 at least, and 4 at most"},
		{"devices_per_host: [4, 0]", four, 4, nil, "host 1 has 0 devices"},
		{"devices_per_host: [1, 3]", two, 4, nil, "devices 0 to 0 are host 0, and device 1 is in one process with 0"},
	} {
		c, err := read(k.hosts, k.levels)
		if err == nil {
			c, err = c.First(k.first)
		}
		if k.refused != "" {
			if err == nil || !strings.Contains(err.Error(), k.refused) {
				t.Errorf("%s on %s: %v, want %s", k.hosts, k.levels, err, k.refused)
			}
		} else if err != nil || !slices.Equal(c.HostSizes(), k.want) {
			t.Errorf("the first %d of %s on %s: %v, %v", k.first, k.hosts, k.levels, c, err)
		}
	}
	for name, want := range map[string][]int{"dapple-a": {8, 8}, "dapple-b:3": {1, 1, 1}, "pcie-8xa100": {8},
		"pcie-8xa100:2x2": {4}, "pipedream-a:2x3": {3, 3}} {
		if c, err := Preset(name); err != nil || !slices.Equal(c.HostSizes(), want) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}
