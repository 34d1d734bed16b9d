package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/schedule"
)

// TestTransfersQueueForAnUplink: each of two servers has two devices, and one uplink in each direction. Three transfers
// between the servers start together; each takes 1 s on the link. Two of them leave server 0, from different devices to
// different devices. One of the two waits for the other, because they share server 0's uplink. The third goes to server
// 0 and does not wait. A fourth, of 0.1 s inside server 0, does not wait either.
func TestTransfersQueueForAnUplink(t *testing.T) {
	c := &cluster.Cluster{
		Name: "two servers", Devices: []string{"d", "d", "d", "d"}, DeviceTypes: map[string]cluster.DeviceType{"d": {}},
		Levels: []cluster.Level{
			{Name: "server", Size: 2, BandwidthBytesPerSecond: 100, FullDuplex: true},
			{Name: "rack", Size: 2, BandwidthBytesPerSecond: 10, FullDuplex: true, Uplinks: true},
		},
	}
	costs := Costs{Links: links(c, []int{0, 1, 2, 3}), Transfer: func(from, to int, bytes int64) (float64, float64) {
		return c.Transfer(from, to, bytes)
	}}
	s := &state{terms: terms{costs: costs}, network: newNetwork()}
	for _, pair := range [][2]int{{0, 2}, {1, 3}, {2, 0}, {0, 1}} {
		s.depart(transfer{from: pair[0], to: pair[1], in: schedule.Instruction{Kind: schedule.SF}, bytes: 10}, false)
	}
	var ends []float64
	for range 4 {
		ends = append(ends, s.queue.pop().at)
	}
	if ends[0] != 0.1 || ends[1] != 1 || ends[2] != 1 || ends[3] != 2 {
		t.Errorf("transfers end at %v; want 0.1 inside, 1 each way, 2 for the second one out", ends)
	}
}
