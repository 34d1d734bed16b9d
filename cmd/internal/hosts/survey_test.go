package hosts

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/measure/links"
	"github.com/millrace-ml/millrace/run/process"
)

type facts = prepare.Facts

// world returns a survey of processes, each written as its host and the digits of its processors. "a:01 b:0" is two
// processes.
func world(workers int, text string) *Survey {
	s := &Survey{Workers: workers}
	nodes := map[string]int{}
	for word := range strings.FieldsSeq(text) {
		host, mask, _ := strings.Cut(word, ":")
		f := facts{CPU: "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", Device: "cpu", MemoryBytes: 8 << 30}
		for _, r := range mask {
			f.Processors = append(f.Processors, int(r-'0'))
		}
		f.Count = len(f.Processors)
		if _, known := nodes[host]; !known {
			nodes[host] = len(nodes)
		}
		s.Hosts, s.Facts = append(s.Hosts, Host{host, nodes[host]}), append(s.Facts, f)
	}
	return s
}

// TestSharesOfCores: processes divide the processors that they share, but not separate ones; each has at least one
// core.
func TestSharesOfCores(t *testing.T) {
	for _, k := range []struct {
		processes string
		threads   int
		want      []int
		parts     string
		crowded   string
	}{
		{"a:01", 1, []int{2}, "", ""},
		{"a:01 a:01", 1, []int{1, 1}, "0 of 2, 1 of 2", ""},
		{"a:0123 a:0123", 1, []int{2, 2}, "0 of 2, 1 of 2", ""},
		{"a:0123 a:0123", 2, []int{1, 1}, "0 of 2, 1 of 2", ""},
		{"a:0123 a:0123", 4, []int{1, 1}, "0 of 2, 1 of 2",
			"host a: 2 processes of 4 threads on 4 cores, so that predictions are not to be judged"},
		{"a:01 b:0", 2, []int{1, 1}, "",
			"host b: 1 process of 2 threads on 1 core, so that predictions are not to be judged"},
		{"a:01 a:23", 1, []int{2, 2}, "", ""},
		{"a:01 a:12", 1, []int{1, 1}, "", ""},
		{"a:01 b:01", 1, []int{2, 2}, "", ""},
		{"a:01 a:01 a:01 b:0", 1, []int{1, 1, 1, 1}, "0 of 3, 1 of 3, 2 of 3",
			"host a: 3 processes on 2 cores, so that predictions are not to be judged"},
	} {
		s := world(1, k.processes)
		var cores []int
		starved, parts := "", ""
		for _, seat := range s.Seats(k.threads) {
			cores = append(cores, seat.Cores)
			if seat.Starved {
				starved = "some"
			}
			if seat.Parts > 0 {
				parts += fmt.Sprintf("%d of %d, ", seat.Part, seat.Parts)
			}
		}
		if !slices.Equal(cores, k.want) || (starved == "") != (k.crowded == "") ||
			strings.TrimSuffix(parts, ", ") != k.parts {
			t.Errorf("%s with %d threads: %v, want %v; parts %s, want %s; starved %s", k.processes, k.threads, cores, k.want,
				parts, k.parts, starved)
		}
		if got := strings.Join(s.Crowded(k.threads), "; "); got != k.crowded {
			t.Errorf("%s: %q, want %q", k.processes, got, k.crowded)
		}
	}
}

// TestHostTypes: equal hosts are one type, named "cpu" like the type of a single machine. Two hosts have different
// types exactly if they differ in something on which a worker's speed depends.
func TestHostTypes(t *testing.T) {
	alike := world(1, "a:01 b:01 c:01")
	if types := alike.Types(1); len(types) != 1 || types[0].Name != "cpu" || len(types[0].Ranks) != 3 ||
		types[0].Workers != 1 || types[0].Cores != 2 {
		t.Errorf("%+v", types)
	}
	alike.Facts[1].MemoryBytes, alike.Facts[1].Processors = 1, []int{4, 5}
	if types := alike.Types(1); len(types) != 1 {
		t.Errorf("memory, or which processors those are, makes another type: %+v", types)
	}
	names := map[string]bool{}
	for _, change := range []func(f *prepare.Facts){
		func(f *prepare.Facts) { f.CPU = "AMD EPYC 7763 64-Core Processor" }, func(f *prepare.Facts) { f.Count = 4 },
		func(f *facts) { f.Quota = 1 }, func(f *facts) { f.BLAS = "MKL" }, func(f *facts) { f.Kernels = "AVX2" },
		func(f *facts) { f.Torch = "2.0" }, func(f *facts) { f.Against = "x" }, func(f *facts) { f.Device = "cuda" },
	} {
		s := world(1, "a:01 b:01")
		change(&s.Facts[1])
		types := s.Types(1)
		if len(types) != 2 || types[0].Name == types[1].Name || types[0].Name != "intel-xeon-e5-2686-v4-2c-"+
			types[0].Name[len(types[0].Name)-4:] {
			t.Errorf("%+v: %+v", s.Facts[1], types)
			continue
		}
		if again := s.Types(1); !reflect.DeepEqual(again, types) {
			t.Errorf("%+v and %+v of the same facts", types, again)
		}
		names[types[1].Name] = true
	}
	if len(names) != 8 {
		t.Errorf("types that differ are called alike: %v", names)
	}
	if types := world(1, "a:01 b:01 b:01").Types(1); len(types) != 2 || types[1].Workers != 2 {
		t.Errorf("a host whose cores more workers share: %+v", types)
	}
}

// TestBoundProcessesMeasureTogether: in a run, processes on separate processors compute at the same time. Therefore
// they also measure at the same time.
func TestBoundProcessesMeasureTogether(t *testing.T) {
	for _, k := range []struct {
		processes string
		types     int
		want      []int // the processes that measure the first type
	}{
		{"a:0 a:1", 1, []int{0, 1}}, {"a:01 a:01", 1, []int{0}}, {"a:0 a:1 b:0 b:1", 1, []int{0, 1}},
		{"a:01 a:01 a:23 a:23", 1, []int{0, 2}}, {"a:0 a:123", 2, []int{0, 1}}, {"a:01 a:12 a:23", 2, []int{0, 2}},
		{"a:0 a:1 b:0", 2, []int{0, 1}}, // b computes faster alone than next to another process
	} {
		s := world(1, k.processes)
		types := s.Types(1)
		if got := s.apart(types[0].Ranks[0]); len(types) != k.types || !slices.Equal(got, k.want) {
			t.Errorf("%s: %d types, the first by %v; want %d by %v", k.processes, len(types), got, k.types, k.want)
		}
	}
}

// TestDevicesAreHostByHost: devices are numbered host by host, however launchers number ranks.
func TestDevicesAreHostByHost(t *testing.T) {
	s := world(2, "a:01 b:01 a:01 b:01")
	got := s.Places([]int{0, 1, 2, 3, 4, 5, 6, 7})
	want := []process.Location{{Process: 0}, {Process: 0, Device: 1}, {Process: 2}, {Process: 2, Device: 1},
		{Process: 1}, {Process: 1, Device: 1}, {Process: 3}, {Process: 3, Device: 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if host, network := s.Levels(); host != [2]int{0, 2} || network != [2]int{0, 1} {
		t.Errorf("links are measured between %v and %v", host, network)
	}
	if host, network := world(1, "a:0").Levels(); host[0] >= 0 || network[0] >= 0 {
		t.Errorf("links of one process: %v and %v", host, network)
	}
}

// TestClusterOfHosts: hosts of different kinds become devices of different types, joined by the measured links.
func TestClusterOfHosts(t *testing.T) {
	s := world(2, "a:01 b:0")
	types := s.Types(1)
	for many, want := range map[float64]int{4.9e6: 1, 5.1e6: manyStreams} {
		one := links.Link{ThereBytesPerSecond: 9e6, BackBytesPerSecond: 4e6}
		if got := filling(one, links.Link{ThereBytesPerSecond: many, BackBytesPerSecond: 20e6}); got != want {
			t.Errorf("4 MB/s with one connection, %v with several: %d of them", many, got)
		}
	}
	m := &Measured{Network: &links.Link{LatencyS: 1e-3, ThereBytesPerSecond: 4e6, BackBytesPerSecond: 2e6}}
	inside := cluster.Link{LatencyS: 1e-5, BandwidthBytesPerSecond: 1e9, CollectiveBytesPerSecond: 2e6}
	c, err := s.Cluster(1, map[string]cluster.DeviceType{types[0].Name: {}, types[1].Name: {}}, m.Between(inside))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Devices, []string{types[0].Name, types[0].Name, types[1].Name, types[1].Name}) ||
		c.CoresOf(0) != 2 || c.CoresOf(3) != 1 || len(c.Levels) != 2 || !c.Levels[0].OneMemory {
		t.Errorf("%+v", c)
	}
	if l := c.Levels[1]; l.BandwidthBytesPerSecond != 2e6 || l.LatencyS < 1.01e-3-1e-12 || l.LatencyS > 1.01e-3+1e-12 ||
		l.CollectiveBandwidthBytesPerSecond != 1e6 {
		t.Errorf("between hosts: %+v; the slower way counts, a message is taken as inside, and sums take their time", l)
	}
}

// TestFits: a cluster describes these hosts, or is refused with an error that names the difference.
func TestFits(t *testing.T) {
	cluster2 := func(t *testing.T, text string) *cluster.Cluster {
		t.Helper()
		c, err := cluster.Parse(strings.NewReader("name: c\ndevice_types: {cpu: {memory: 4GiB}, slow: {}}\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const link = ", bandwidth: 1GB/s, latency: 1us"
	levels := "levels: [{name: network, size: 2" + link + "}]"
	two := "devices_per_host: [1]\n" + levels
	four := "device: cpu\nlevels: [{name: host, size: 2" + link + "}, {name: network, size: 2" + link + "}]"
	for _, k := range []struct {
		workers            int
		processes, c, want string
	}{
		{1, "a:01 b:01", "device: cpu\n" + two, ""},
		{1, "a:01 b:0", "nodes: [{devices: [cpu, slow]}]\n" + two, ""},
		{1, "a:01 a:01 b:01 b:01", four, ""},
		{1, "a:01 b:01 a:01 b:01", four, ""},
		{2, "a:01 b:01", four, ""},
		{1, "a:01 b:01 c:01", "device: cpu\n" + two,
			"c has 2 devices; here: 1 worker on host a, 1 worker on host b, 1 worker on host c"},
		{1, "a:01", "device: cpu\n" + levels, "c has 2 devices; here: 1 worker on host a"},
		{1, "a:01 b:0", "device: cpu\n" + two, "rank 1 on host b, where device 1 would be, is another host type (Intel(R) " +
			"Xeon(R) CPU E5-2686 v4 @ 2.30GHz, 1 core) than rank 0 on host a"},
		{1, "a:01 b:01", "nodes: [{devices: [cpu, slow]}]\n" + two,
			"device 1 is of type slow; rank 1 on host b, where it would be, is of the same host type as one of type cpu"},
		{1, "a:01 a:01 a:01 b:01", four, "cluster c is 2 hosts of 2 devices; here are 3 workers on host a, " +
			"1 worker on host b: devices_per_host"},
		{1, "a:01 b:01", "device: cpu\n" + levels, "cluster c is 1 host of 2 devices; here are 1 worker on host a, " +
			"1 worker on host b: devices_per_host says where hosts end"},
		{1, "a:01 a:01", "device: cpu\n" + two, "cluster c is 2 hosts of 1 device; here are 2 workers on host a"},
		{1, "a:01 b:01 b:01 b:01", "device: cpu\ndevices_per_host: [2]\nlevels: [{name: network, size: 4" + link + "}]",
			"cluster c is 2 hosts of 2 devices; here are 1 worker on host a, 3 workers on host b"},
		{1, "a:01 b:01 b:01 b:01", "nodes: [{devices: [cpu, slow, slow, slow]}]\ndevices_per_host: [1, 3]\n" +
			"levels: [{name: network, size: 4" + link + "}]", ""},
		{1, "a:01 b:01", "device: cpu\nlevels: [{name: process, size: 2, one_memory: true" + link + "}]",
			"cluster c is 1 host of 2 devices; here are 1 worker on host a, 1 worker on host b"},
		{1, "a:01 a:01", "device: cpu\nlevels: [{name: process, size: 2, one_memory: true" + link + "}]",
			"has devices 0 and 1 in one process; each process has 1 worker"},
		{1, "a:01 b:01", "nodes: [{device: cpu, memory: 9GiB}]\n" + two,
			"device 0 has 9.00 GiB of memory on host a; it has 8.00 GiB for 1 worker"},
		{1, "a:01 a:01", "nodes: [{devices: [cpu, cpu], memory: 5GiB}]\n" + levels,
			"devices up to 1 have 10.0 GiB of memory on host a; it has 8.00 GiB for 2 workers"},
	} {
		err := world(k.workers, k.processes).Fits(cluster2(t, k.c))
		if (err == nil) != (k.want == "") || err != nil && !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s with %d: got %v, want %q", k.processes, k.workers, err, k.want)
		}
	}
}

// TestSuits: Suits compares the devices that a plan's cluster and the hosts both have.
func TestSuits(t *testing.T) {
	for _, k := range []struct {
		plan, here *Survey
		want       string
	}{
		{world(1, "a:01 b:0"), world(1, "c:01 d:0"), ""},
		{world(1, "a:01 b:0 c:0"), world(1, "c:01 d:01 e:0"), "rank 1 on host d, where it would be, is of type"},
		{world(1, "a:01 b:0 c:0"), world(1, "c:0 d:0 e:1"), "is of the same host type as one of type"},
		{world(1, "a:01 b:0"), world(1, "c:01 d:01"), "is of the same host type as one of type"},
		{world(1, "a:01 b:01"), world(1, "c:01 d:0"), "devices 0 and 1 are of type"},
		{world(1, "a:01 b:01"), world(1, "c:01 c:01"), "2 hosts of 1 device; here are 2 workers on host c"},
		{world(1, "a:01 a:01"), world(1, "c:01 d:01"), "1 host of 2 devices; here are 1 worker on host c, 1 worker on "},
		{world(1, "a:01 a:01"), world(2, "c:01"), ""},
		{world(2, "a:01"), world(1, "c:01 c:01"), ""},
		{world(1, "a:01 a:01 b:01 b:01"), world(1, "c:01 c:01 d:01"), ""}, // the plan's fourth device is not compared
		{world(1, "a:01 b:01"), world(1, "c:01 d:01 e:01"), ""},
	} {
		err := k.here.Suits(clusterOf(t, k.plan))
		if (err == nil) != (k.want == "") || err != nil && !strings.Contains(err.Error(), k.want) {
			t.Errorf("a plan for %s on %s: %v, want %q", text(k.plan), text(k.here), err, k.want)
		}
	}
}

// TestAPlansHostsAreFound: hosts keep their places in the plan even if a launcher numbers them differently now.
func TestAPlansHostsAreFound(t *testing.T) {
	for _, k := range []struct {
		plan, here string
		want       []int // the processes in the order of devices
	}{
		{"a:01 b:0", "c:01 d:0", []int{0, 1}},
		{"a:01 b:0", "c:0 d:01", []int{1, 0}},
		{"a:01 b:0 c:0", "c:0 d:01 e:0", []int{1, 0, 2}},
		{"a:01 b:0 c:01", "c:01 d:01 e:0", []int{0, 2, 1}},
		{"a:01 b:0 b:0", "c:0 d:01 c:0", []int{1, 0, 2}},
		{"a:01 b:0", "c:0 d:0 e:01", []int{2, 0, 1}},
	} {
		s := world(1, k.here)
		planned := clusterOf(t, world(1, k.plan))
		if err := s.Suits(planned); err != nil {
			t.Errorf("a plan for %s on %s: %v", k.plan, k.here, err)
			continue
		}
		var got []int
		for d := range k.want {
			got = append(got, s.Places([]int{d})[0].Process)
		}
		if !slices.Equal(got, k.want) {
			t.Errorf("a plan for %s on %s is placed on %v; want %v", k.plan, k.here, got, k.want)
		}
		if c := clusterOf(t, s); !slices.Equal(c.Devices[:len(planned.Devices)], planned.Devices) {
			t.Errorf("%s for a plan for %s has devices %v; want %v", k.here, k.plan, c.Devices, planned.Devices)
		}
	}
}

// clusterOf returns the cluster of a survey.
func clusterOf(t *testing.T, s *Survey) *cluster.Cluster {
	t.Helper()
	types := map[string]cluster.DeviceType{}
	for _, k := range s.Types(1) {
		types[k.Name] = cluster.DeviceType{}
	}
	link := cluster.Link{LatencyS: 1e-5, BandwidthBytesPerSecond: 1e9}
	c, err := s.Cluster(1, types, Links{link, link, link})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// text returns the text from which world makes a survey.
func text(s *Survey) string {
	var words []string
	for rank, h := range s.Hosts {
		word := h.Name + ":"
		for _, p := range s.Facts[rank].Processors {
			word += fmt.Sprint(p)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestUnlikeLinks: a link is reported if it is twice as fast or slow as the cluster says, otherwise not.
func TestUnlikeLinks(t *testing.T) {
	s := world(1, "a:0 b:0 a:0 b:0")
	m := &Measured{}
	m.HostRanks, m.BetweenTwo = s.Levels()
	m.Host = &links.Link{LatencyS: 1e-5, ThereBytesPerSecond: 2e9, BackBytesPerSecond: 1e9}
	m.Network = &links.Link{LatencyS: 1e-4, ThereBytesPerSecond: 1e7, BackBytesPerSecond: 2e7}
	for _, k := range []struct {
		host, network float64
		want          []string
	}{
		{1e9, 1e7, nil}, {1.5e9, 0.6e7, nil}, {1e9, 1e9, []string{"takes 105 ms between hosts, as measured now, and"}},
		{1e8, 1e6, []string{"inside a host", "between hosts"}},
	} {
		c, err := s.Cluster(1, map[string]cluster.DeviceType{"cpu": {}}, Links{Host: cluster.Link{LatencyS: 1e-5,
			BandwidthBytesPerSecond: k.host}, Network: cluster.Link{LatencyS: 1e-4, BandwidthBytesPerSecond: k.network}})
		if err != nil {
			t.Fatal(err)
		}
		got := m.Unlike(s, c)
		if len(got) != len(k.want) {
			t.Errorf("%+v: %q", k, got)
			continue
		}
		for i, want := range k.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%+v: %q", k, got)
			}
		}
	}
}

// TestHas: a plan's devices must be among the workers.
func TestHas(t *testing.T) {
	s := world(2, "a:01 b:01")
	if err := s.Has("plan.json", []int{0, 3}); err != nil {
		t.Error(err)
	}
	const want = "the plan in plan.json has a worker on device 4; there are devices 0 to 3: 2 workers on host " +
		"a, 2 workers on host b"
	if err := s.Has("plan.json", []int{0, 4}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestTheFirstErrorIsTheCause: the first error ends the other calls, and their errors do not hide it.
func TestTheFirstErrorIsTheCause(t *testing.T) {
	cause := errors.New("the device is gone")
	err := each(t.Context(), 3, func(ctx context.Context, i int) error {
		if i == 2 {
			return cause
		}
		<-ctx.Done()
		return fmt.Errorf("end %d waits for the other: %w", i, ctx.Err())
	})
	if err != cause {
		t.Errorf("%v", err)
	}
	if err := each(t.Context(), 3, func(context.Context, int) error { return nil }); err != nil {
		t.Error(err)
	}
}
