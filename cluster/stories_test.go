package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
)

// TestStories runs the stories in testdata: how hardware is described, and which questions a description answers.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

// storyWorld holds the cluster that the story works on.
type storyWorld struct{ c *Cluster }

// Do implements storytest.World.
//
//	cluster                          reads a file; prints a summary in one line
//	type name=T                      prints a device type's memory, speeds and peaks
//	transfer from=D to=D bytes=N     prints the level that it crosses, how long it occupies links, and when it arrives
//	contend a=(D,D) b=(D,D)          prints whether two transfers share a link
//	all-reduce devices=(D,...) bytes=N    prints the times by one ring, and level by level
func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	var bytes int64
	d.MaybeScanArgs(t, "bytes", &bytes)
	switch d.Cmd {
	case "cluster":
		c, err := Parse(strings.NewReader(d.Input))
		if err != nil {
			return "", err
		}
		w.c = c
		return c.Summary(), nil
	case "type":
		var name string
		d.ScanArgs(t, "name", &name)
		of, has := w.c.DeviceTypes[name]
		if !has {
			return "", fmt.Errorf("no type %q", name)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%d bytes, %g FLOP/s, %g bytes/s\n", of.MemoryBytes, of.PeakFLOPS, of.MemoryBandwidthBytesPerSecond)
		for _, p := range Precisions {
			if of.Peaks[p] > 0 {
				fmt.Fprintf(&b, "  %s: %g FLOP/s\n", p, of.Peaks[p])
			}
		}
		return b.String(), nil
	case "transfer":
		var from, to int
		d.ScanArgs(t, "from", &from)
		d.ScanArgs(t, "to", &to)
		latency, taken := w.c.Transfer(from, to, bytes)
		return fmt.Sprintf("over the %s: links are taken for %.6g s, it is there after %.6g s\n",
			w.c.Levels[w.c.LevelOf(from, to)].Name, taken, latency+taken), nil
	case "contend":
		var a, b [2]int
		d.ScanArgs(t, "a", &a[0], &a[1])
		d.ScanArgs(t, "b", &b[0], &b[1])
		other := w.c.Links(b[0], b[1])
		shared := slices.ContainsFunc(w.c.Links(a[0], a[1]), func(l [2]int) bool { return slices.Contains(other, l) })
		return map[bool]string{true: "one waits for the other\n", false: "side by side\n"}[shared], nil
	case "all-reduce":
		var devices []int
		arg, _ := d.Arg("devices")
		for i := range arg.Vals {
			var n int
			arg.Scan(t, i, &n)
			devices = append(devices, n)
		}
		ring, levels := w.c.RingAllReduceS(devices, bytes), w.c.HierarchicalAllReduceS(devices, bytes)
		return fmt.Sprintf("rings over all %.6g s, level by level %.6g s; the faster counts: %.6g s\n", ring, levels,
			w.c.AllReduceS(devices, bytes)), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}
