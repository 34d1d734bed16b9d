package cluster

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// pairOfServers returns two servers of two devices. Links inside a server have 100 B/s, and links between the servers
// have 10 B/s. `between` is YAML with further keys of the level between the servers.
func pairOfServers(t *testing.T, between string) *Cluster {
	t.Helper()
	c, err := Parse(strings.NewReader(`name: pair
device_types: {d: {memory: 1GB}}
device: d
levels:
  - {name: server, size: 2, bandwidth: 100B/s}
  - {name: net, size: 2, bandwidth: 10B/s, ` + between + `}
`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLoadsByHand checks, with numbers worked out by hand, which share of a port a transfer takes. The messages here
// have 20 bytes, which need 2 s at 10 B/s. A message that occupies its two ports for 2 s takes all of them. A message
// that occupies them for 4 s takes half of them. In the all-reduce of 40 bytes in 4 s, each of the two servers sends 40
// bytes and receives 40. With uplinks, it takes all of a server's uplink. Without uplinks, it takes half of each of a
// server's two ports. On a shared level, it takes all of the only link.
func TestLoadsByHand(t *testing.T) {
	port := func(number int, back bool) Port { return Port{Level: 1, Number: number, Back: back} }
	for _, of := range []struct {
		between       string
		from, to      int
		linkS         float64
		message, sums []Load
	}{
		{"contention: true", 1, 2, 2, []Load{{port(1, false), 1}, {port(2, true), 1}},
			[]Load{{port(0, false), 0.5}, {port(0, true), 0.5}, {port(1, false), 0.5}, {port(1, true), 0.5},
				{port(2, false), 0.5}, {port(2, true), 0.5}, {port(3, false), 0.5}, {port(3, true), 0.5}}},
		{"contention: true, uplinks: true", 1, 2, 4, []Load{{port(0, false), 0.5}, {port(1, true), 0.5}},
			[]Load{{port(0, false), 1}, {port(0, true), 1}, {port(1, false), 1}, {port(1, true), 1}}},
		{"contention: true, rails: 2", 1, 2, 2, []Load{{port(1, false), 1}, {port(2, true), 1}},
			[]Load{{port(0, false), 0.5}, {port(0, true), 0.5}, {port(1, false), 0.5}, {port(1, true), 0.5},
				{port(2, false), 0.5}, {port(2, true), 0.5}, {port(3, false), 0.5}, {port(3, true), 0.5}}},
		{"contention: true, uplinks: true, duplex: half", 1, 2, 4, []Load{{port(0, false), 0.5}, {port(1, false), 0.5}},
			[]Load{{port(0, false), 1}, {port(1, false), 1}}},
		{"contention: true, shared: true", 2, 1, 2, []Load{{port(0, true), 1}}, []Load{{port(0, false), 1},
			{port(0, true), 1}}},
		{"contention: true", 0, 1, 2, nil, nil}, // inside a server, whose level has no contention
		{"uplinks: true", 1, 2, 2, nil, nil},
	} {
		c := pairOfServers(t, of.between)
		same(t, of.between+", a message", c.MessageLoads(of.from, of.to, 20, of.linkS), of.message)
		if of.sums != nil {
			same(t, of.between+", an all-reduce", c.SumLoads([]int{0, 1, 2, 3}, 40, AllReduce, 4), of.sums)
		}
		same(t, of.between+", inside a server", c.SumLoads([]int{0, 1}, 40, AllReduce, 4), nil)
	}
	// A gather moves half as many bytes as an all-reduce. One device of each server uses only its own port.
	c := pairOfServers(t, "contention: true")
	same(t, "a gather of two", c.SumLoads([]int{1, 3}, 40, Gather, 4), []Load{{port(1, false), 0.5}, {port(1, true), 0.5},
		{port(3, false), 0.5}, {port(3, true), 0.5}})
	// With the collective bandwidth below, collectives reach a higher rate than a message. So a message takes only a
	// part of a port.
	c.Levels[1].CollectiveBandwidthBytesPerSecond = 80 // 80 B/s of a server are 40 B/s of each of its two ports
	same(t, "a message on a quarter of a port", c.MessageLoads(1, 2, 20, 2), []Load{{port(1, false), 0.25},
		{port(2, true), 0.25}})
}

func same(t *testing.T, what string, got, want []Load) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s takes %v, want %v", what, got, want)
	}
}

// TestLoadsOfInnerUplinks: here messages and sums go over the outermost level, and cross the uplinks of an inner level
// on their way. These uplinks are ports too, because the inner level has contention.
func TestLoadsOfInnerUplinks(t *testing.T) {
	c := pairOfServers(t, "contention: true, uplinks: true")
	c.Levels = append(c.Levels, Level{Name: "hall", Size: 2, BandwidthBytesPerSecond: 10, FullDuplex: true})
	c.Devices = append(c.Devices, c.Devices...)
	port := func(number int, back bool) Port { return Port{Level: 1, Number: number, Back: back} }
	same(t, "a message", c.MessageLoads(0, 4, 20, 2), []Load{{port(0, false), 1}, {port(2, true), 1}})
	same(t, "an all-reduce", c.SumLoads([]int{0, 4}, 40, AllReduce, 4), []Load{{port(0, false), 1}, {port(0, true), 1},
		{port(2, false), 1}, {port(2, true), 1}})
}

// TestGroupsOfDifferentSizes: three devices of one server and one of another sum 40 bytes. In their ring each device
// sends 2 x 3/4 x 40 = 60 bytes. The device that is alone in its server takes no port of that server. If the server of
// three has a single shared link, that link carries 60 bytes for each of the three devices. Half duplex links between
// pairs of devices change nothing: in a ring of more than two devices, each link carries bytes in one direction only.
func TestGroupsOfDifferentSizes(t *testing.T) {
	c := &Cluster{Levels: []Level{
		{Name: "server", Size: 3, BandwidthBytesPerSecond: 10, FullDuplex: true, Contention: true},
		{Name: "net", Size: 2, BandwidthBytesPerSecond: 1e12, FullDuplex: true}},
		Devices: []string{"d", "d", "d", "d", "d", "d"}}
	devices := []int{0, 1, 2, 3}
	port := func(number int, back bool) Port { return Port{Number: number, Back: back} }
	var want []Load
	for d := range 3 {
		want = append(want, Load{port(d, false), 0.5}, Load{port(d, true), 0.5})
	}
	same(t, "a sum", c.SumLoads(devices, 40, AllReduce, 12), want)
	seconds := func(what string, want float64) {
		t.Helper()
		if got := c.CollectiveS(devices, 40, AllReduce); math.Abs(got-want) > 1e-6 {
			t.Errorf("%s takes %v s, want %v", what, got, want)
		}
	}
	seconds("a sum", 6)
	c.Levels[0].FullDuplex = false
	seconds("a half duplex sum", 6)
	c.Levels[0].Shared = true
	seconds("a sum over half duplex buses", 18)
	c.Levels[0].FullDuplex = true
	same(t, "a sum over buses", c.SumLoads(devices, 40, AllReduce, 36), []Load{{port(0, false), 0.5},
		{port(0, true), 0.5}})
}

// TestContentionInFiles: the key contention is written as it was read. A level with one_memory cannot have it, because
// messages within one memory use no port.
func TestContentionInFiles(t *testing.T) {
	c := pairOfServers(t, "contention: true")
	if !c.Contends() || c.Levels[0].Contention || !c.Levels[1].Contention || pairOfServers(t, "rails: 2").Contends() {
		t.Errorf("%+v", c.Levels)
	}
	if !strings.Contains(c.Text(), "contention: true}") || strings.Count(c.Text(), "contention") != 1 {
		t.Error(c.Text())
	}
	_, err := Parse(strings.NewReader("name: a\ndevice_types: {d: {memory: 1GB}}\ndevice: d\nlevels:\n" +
		"  - {name: host, size: 2, bandwidth: 1GB/s, one_memory: true, contention: true}\n"))
	if err == nil || !strings.Contains(err.Error(), "level 0 (host): it has both contention and one_memory") {
		t.Error(err)
	}
	_, err = Parse(strings.NewReader("name: a\ndevice_types: {d: {memory: 1GB}}\ndevice: d\nlevels:\n" +
		"  - {name: host, size: 2, bandwidth: 1GB/s, contention: half}\n"))
	if err == nil || !strings.Contains(err.Error(), "contention") {
		t.Error(err)
	}
}

// TestCollectivesOfSharedAndHalfDuplexLinks compares collectives over a shared link and over half-duplex links with
// times worked out by hand. In an all-reduce of 80 bytes among n members, each member sends 80*2*(n-1)/n bytes. The
// shared link of four members has 10 B/s and carries 4*120 bytes. With two servers, a half-duplex uplink carries 160
// bytes: the 80 bytes that its server sends and the 80 bytes that its server receives. The only link of a half-duplex
// pair carries 160 bytes too. In a ring of four, half duplex costs nothing, because each link between two neighbours is
// used in one direction.
func TestCollectivesOfSharedAndHalfDuplexLinks(t *testing.T) {
	level := func(size int, change func(l *Level)) Level {
		l := Level{Name: "net", Size: size, BandwidthBytesPerSecond: 10, FullDuplex: true}
		change(&l)
		return l
	}
	for what, of := range map[string]struct {
		levels []Level
		want   float64
	}{
		"a bus of four":      {[]Level{level(4, func(l *Level) { l.Shared = true })}, 48},
		"a half duplex bus":  {[]Level{level(4, func(l *Level) { l.Shared, l.FullDuplex = true, false })}, 48},
		"four at a switch":   {[]Level{level(4, func(*Level) {})}, 12},
		"four half duplex":   {[]Level{level(4, func(l *Level) { l.FullDuplex = false })}, 12},
		"a half duplex pair": {[]Level{level(2, func(l *Level) { l.FullDuplex = false })}, 16},
		"half duplex uplinks": {[]Level{{Size: 1, BandwidthBytesPerSecond: 100},
			level(2, func(l *Level) { l.Uplinks, l.FullDuplex = true, false })}, 16},
		"uplinks": {[]Level{{Size: 1, BandwidthBytesPerSecond: 100}, level(2, func(l *Level) { l.Uplinks = true })}, 8},
		"a bus between servers": {[]Level{{Size: 1, BandwidthBytesPerSecond: 100},
			level(3, func(l *Level) { l.Shared = true })}, 32},
		"a measured bus": {[]Level{level(4, func(l *Level) {
			l.Shared, l.CollectiveBandwidthBytesPerSecond = true, 5
		})}, 24},
	} {
		c := &Cluster{Levels: of.levels}
		n := 1
		for _, l := range of.levels {
			n *= l.Size
		}
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		c.Devices = make([]string, n)
		close(t, what, c.CollectiveS(all, 80, AllReduce), of.want)
		close(t, what+", a gather", c.CollectiveS(all, 80, Gather), of.want/2)
	}
}
