package bound

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestNoDevicesSumFasterThanTheBound tries every set of devices of random clusters with up to three levels. If no level
// is shared and all links of a level are the same, the best set meets the bound in at least four of five cases.
func TestNoDevicesSumFasterThanTheBound(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	met, alike := 0, 0
	for range 400 {
		c := &cluster.Cluster{Name: "random", DeviceTypes: map[string]cluster.DeviceType{"x": {}}}
		devices := 1
		for range 1 + r.IntN(3) {
			l := cluster.Level{Size: 1 + r.IntN(3), BandwidthBytesPerSecond: 1 + 20*r.Float64(),
				LatencyS: r.Float64() * float64(r.IntN(2)), Shared: r.IntN(5) == 0, FullDuplex: r.IntN(2) == 0}
			l.Uplinks = !l.Shared && r.IntN(4) == 0
			if r.IntN(4) == 0 {
				l.CollectiveBandwidthBytesPerSecond = 1 + 20*r.Float64()
			}
			if devices*l.Size > 9 {
				break
			}
			devices *= l.Size
			c.Levels = append(c.Levels, l)
		}
		for range devices {
			c.Devices = append(c.Devices, "x")
		}
		plain := true
		for _, l := range c.Levels {
			plain = plain && !l.Shared
		}
		if r.IntN(3) == 0 {
			plain = false
			for range devices / c.Levels[0].Size {
				c.Nodes = append(c.Nodes, cluster.Node{BandwidthBytesPerSecond: 30 * r.Float64() * float64(r.IntN(2)),
					LatencyS: r.Float64() * float64(r.IntN(2))})
			}
		}
		bounds := leastReduces(c, devices, len(c.Levels), false)
		for _, bytes := range []int64{0, 1, 1000} {
			best := make([]float64, devices+1)
			for i := range best {
				best[i] = math.Inf(1)
			}
			for set := 1; set < 1<<devices; set++ {
				var members []int
				for d := range devices {
					if set>>d&1 == 1 {
						members = append(members, d)
					}
				}
				n := bits.OnesCount(uint(set))
				took := c.AllReduceS(members, bytes)
				best[n] = min(best[n], took)
				if bound := bounds[n].of(bytes); took < bound*(1-1e-12) {
					t.Fatalf("%+v: devices %v sum %d bytes in %g s, the bound is %g", c, members, bytes, took, bound)
				}
			}
			for n := 2; n <= devices && plain && bytes > 0; n++ {
				alike++
				if plantest.Close(best[n], bounds[n].of(bytes)) {
					met++
				}
			}
		}
	}
	if met*10 < alike*8 {
		t.Errorf("the best devices meet the bound in %d of %d cases", met, alike)
	}
	t.Logf("met in %d of %d", met, alike)
}
