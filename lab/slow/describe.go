package slow

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
)

// linkLatencyS is how many seconds a frame takes from one host's TCP to another's over an idle bridge.
const linkLatencyS = 100e-6

// Cluster describes hosts with one device each and links of this rate. The hosts share the machine's processors.
func Cluster(hosts, processors int, r Rate, device string, memoryBytes int64) *cluster.Cluster {
	c := &cluster.Cluster{
		Name: fmt.Sprintf("%d hosts, links of %s", hosts, r.Name), Cores: processors,
		DeviceTypes: map[string]cluster.DeviceType{device: {MemoryBytes: memoryBytes}},
		Levels: []cluster.Level{{Name: "ethernet", Size: hosts, BandwidthBytesPerSecond: r.Payload(),
			LatencyS: linkLatencyS, FullDuplex: true, Uplinks: true}},
		PerHost: []int{1},
	}
	for range hosts {
		c.Devices = append(c.Devices, device)
	}
	return c
}
