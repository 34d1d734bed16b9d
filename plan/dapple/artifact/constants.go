package artifact

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
)

// Constants holds the constants of the published code's source or of its examples.
type Constants struct {
	MinMicroBatch           int     // samples of one micro-batch of one pipeline
	OptimizerMemoryScaling  float64 // bytes of parameters, gradients and optimizer, divided by the parameters' bytes
	PeakActivationPerSample float64 // bytes per sample; 0 means all activations in the profile
	NVLink                  float64 // bytes/s between devices of one server
	EthernetP2P             float64 // bytes/s between servers, for transfers to one server
	EthernetNCCL            float64 // bytes/s between servers, for transfers to several servers and for all-reduces
	GPUMemory               float64 // bytes, for data parallelism
	ProfileBatch            int     // samples that the profile's costs are for; 0: the profile's own number
	Server                  int     // devices of one server; 0: as in the cluster's levels
}

// ConstantsOf returns the constants for a request's own profile and cluster. `server` is the number of devices in a
// server; 0 means the number that the cluster's levels give.
//
// The bandwidth inside servers is that of the slowest level that joins devices of a server. The bandwidth between
// servers is that of the slowest level that joins servers; a level that does both counts for both. A missing kind of
// link takes no time. All devices are assumed to have the memory of the smallest, and a device without a limit has room
// for any batch.
func ConstantsOf(r plan.Request, server int) Constants {
	if server == 0 {
		server = servers.SizeOf(r.Cluster)
	}
	k := Constants{
		MinMicroBatch: max(1, r.MicroBatch), OptimizerMemoryScaling: float64(2 + r.Profile.OptimizerStates),
		Server: server,
		NVLink: math.Inf(1), EthernetP2P: math.Inf(1), EthernetNCCL: math.Inf(1), GPUMemory: math.Inf(1),
	}
	size := 1 // number of devices that a level joins
	for i, l := range r.Cluster.Levels {
		pair, all := slowest(r.Cluster, i)
		if l.Size > 1 && size < server {
			k.NVLink = min(k.NVLink, pair)
		}
		if size *= l.Size; l.Size > 1 && size > server {
			k.EthernetP2P, k.EthernetNCCL = min(k.EthernetP2P, pair), min(k.EthernetNCCL, all)
		}
	}
	for d := range r.Cluster.Devices {
		if m := r.Cluster.MemoryBytes(d); m > 0 {
			k.GPUMemory = min(k.GPUMemory, float64(m))
		}
	}
	return k
}

// slowest returns the bytes per second of a level's slowest link, between two devices and in collectives.
func slowest(c *cluster.Cluster, level int) (pair, all float64) {
	l := c.Levels[level]
	pair, all = l.BandwidthBytesPerSecond, l.CollectiveBandwidthBytesPerSecond
	if level == 0 {
		for _, n := range c.Nodes {
			if n.BandwidthBytesPerSecond > 0 {
				pair = min(pair, n.BandwidthBytesPerSecond)
			}
		}
	}
	if all == 0 {
		all = pair
	}
	return pair, all
}

// links describes the bandwidths.
func (k Constants) links() string {
	rate := func(bytesPerSecond float64) string {
		if math.IsInf(bytesPerSecond, 1) {
			return "any speed"
		}
		return fmt.Sprintf("%.3g GB/s", bytesPerSecond/1e9)
	}
	return rate(k.NVLink) + " inside a server, " +
		rate(k.EthernetP2P) + " between two and " + rate(k.EthernetNCCL) + " between several"
}
