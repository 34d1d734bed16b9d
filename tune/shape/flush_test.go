package shape

import (
	"fmt"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
)

// TestSumsBeginWhenTheirWorkerEnds: of four workers only the last has parameters. Their sum takes 100 s, and begins
// when that worker's last backward ends. After that, the last micro-batch still goes back through the other three
// workers, which hides a part of the sum. A worker's chunks take 2 s together. By hand, 6 s are hidden with one chunk,
// 3 s with two and 2 s with three. With zb-h1 all workers end together, so nothing is hidden.
func TestSumsBeginWhenTheirWorkerEnds(t *testing.T) {
	for _, c := range []struct {
		schedule string
		chunks   int
		want     float64
	}{{"1f1b", 1, 94}, {"afab", 1, 94}, {"interleaved", 2, 97}, {"bfs", 2, 97}, {"interleaved", 3, 98},
		{"zb-h1", 1, 100}} {
		t.Run(fmt.Sprint(c.schedule, " ", c.chunks), func(t *testing.T) {
			s := Shape{Schedule: c.schedule, Stages: 4, Chunks: c.chunks, Replicas: 2, Behind: true}.filled()
			// In a ring of two, each device sends half of the bytes twice.
			net := &cluster.Cluster{Name: "net", DeviceTypes: map[string]cluster.DeviceType{"x": {}},
				Levels: []cluster.Level{{Name: "net", Size: 8, BandwidthBytesPerSecond: 4, FullDuplex: true}}}
			for range 8 {
				net.Devices = append(net.Devices, "x")
			}
			l := &links{c: net, s: s}
			var stages []stage
			for _, on := range s.placement() {
				st := stage{worker: on[0]}
				st.input, st.weight = 1/float64(c.chunks), 1/float64(c.chunks)
				if st.worker == 3 {
					st.parameters = 100 / float64(c.chunks) // of 4 bytes, at 4 bytes a second
				}
				stages = append(stages, st)
			}
			if got, _ := s.flush(stages, l, net.DeviceTypes["x"], false); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("the sum takes %g s behind the step; by hand %g s", got, c.want)
			}
		})
	}
}
