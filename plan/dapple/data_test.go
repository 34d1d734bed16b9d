package dapple

import (
	"context"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// Data parallelism wins with links that cost nothing, unless a sample takes more of a device
// than the profile's activations say, which is DAPPLE's peak_activation_per_batch.
func TestDappleDataParallelismNeedsItsPeak(t *testing.T) {
	r := plantest.EvenChain(4, 2, 1e12)
	r.Cluster.DeviceTypes["d"] = cluster.DeviceType{MemoryBytes: 2000}
	r.Cluster.Levels[0].CollectiveBandwidthBytesPerSecond = 1e12
	for _, c := range []struct {
		peak   string
		stages int
	}{{"0", 1}, {"1000", 1}, {"1300", 2}} { // 4 x 100 bytes of weights and as many of gradients
		r.Set = map[string]string{"peak_activation_per_batch": c.peak}
		r.MicroBatch = 1
		p, err := find(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Stages) != c.stages {
			t.Errorf("a sample takes %s bytes: %d stages, want %d: %v", c.peak, len(p.Stages), c.stages, p.Why)
		}
	}
}
