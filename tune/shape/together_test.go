package shape_test

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/tune/shape"
)

// TestMessagesShareUplinks: replicas and devices of a group whose messages take the same uplink wait for each other.
// Shapes and the simulation of their plans agree. For two stages on two servers the wait is known: in each direction
// the last of k messages of a time T waits for (k-1) T, but from then on the replicas are apart by T, and wait no more.
func TestMessagesShareUplinks(t *testing.T) {
	untied, err := model.Build("gpt", map[string]any{"layers": 8, "width": 512, "heads": 8, "context": 128,
		"vocabulary": 1024})
	if err != nil {
		t.Fatal(err)
	}
	servers := func(outer cluster.Level) *cluster.Cluster {
		c := machines(2)
		c.Levels[0].Size, c.Levels[0].FullDuplex = 4, true
		outer.Name, outer.Size, outer.BandwidthBytesPerSecond, outer.LatencyS, outer.FullDuplex = "net", 2, 10e9, 1e-5, true
		c.Levels[1], c.Devices = outer, c.Devices[:8]
		return c
	}
	const bytes = 2 * 4 * 128 * 512 // of a micro-batch of four samples between two stages
	for _, one := range []struct {
		s     shape.Shape
		outer cluster.Level
		waits float64 // messages that the last one waits for, more than without shared links
	}{
		{shape.Shape{Replicas: 4, Stages: 2}, cluster.Level{Uplinks: true}, 3},
		{shape.Shape{Replicas: 4, Stages: 2}, cluster.Level{Rails: 2}, 1},
		{shape.Shape{Replicas: 4, Stages: 2}, cluster.Level{Rails: 4}, 0},
		{shape.Shape{Replicas: 2, Stages: 4}, cluster.Level{Uplinks: true}, 1},
		{shape.Shape{Replicas: 2, Stages: 2, Tensor: 2, SequenceParallel: true}, cluster.Level{Uplinks: true}, -1},
		{shape.Shape{Replicas: 1, Stages: 2, Tensor: 4, SequenceParallel: true}, cluster.Level{Rails: 2}, -1},
		{shape.Shape{Replicas: 1, Stages: 4, Tensor: 2, SequenceParallel: true}, cluster.Level{Rails: 2}, -1},
		{shape.Shape{Replicas: 2, Stages: 4}, cluster.Level{Shared: true}, -1},
		{shape.Shape{Replicas: 2, Stages: 4}, cluster.Level{Uplinks: true, OccupiesDevice: true}, -1},
	} {
		s := one.s
		s.Batch, s.MicroBatch, s.Precision, s.States, s.Behind = 32, 4, "bf16", 2, true
		closed, simulated := bothWays(t, untied, servers(one.outer), s)
		if d := math.Abs(simulated.StepS/closed.StepS - 1); d > 1e-3 {
			t.Errorf("%v over %+v: %v s simulated, %v by the shape", s, one.outer, simulated.StepS, closed.StepS)
		}
		if one.waits < 0 {
			continue
		}
		apart, err := shape.Predict(untied, servers(cluster.Level{}), s)
		if err != nil {
			t.Fatal(err)
		}
		if want := one.waits * bytes / 10e9; math.Abs(closed.StepS-apart.StepS-want) > 1e-3*bytes/10e9 {
			t.Errorf("%v over %+v: %v s more than with links of their own, want %v", s, one.outer,
				closed.StepS-apart.StepS, want)
		}
	}
}
