package tune

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"pgregory.net/rapid"
)

// TestTheWidestLayerOfARun: the blocks of a table find what a look at every layer finds.
func TestTheWidestLayerOfARun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5*blockOf).Draw(t, "layers")
		p := &profile.Profile{Version: profile.Version, Model: "m"}
		for k := range n {
			c := profile.Cost{Device: "cpu", MicroBatch: 1, SavedBytes: 3}
			if rapid.IntRange(0, 20).Draw(t, "wide") == 0 {
				c.WorkspaceBytes, c.BackwardPeakBytes = rapid.Int64Range(0, 1000).Draw(t, "workspace"), rapid.Int64Range(0, 1000).Draw(t, "peak")
			}
			p.Layers = append(p.Layers, profile.Layer{From: []int{k - 1}, TiedTo: -1, Costs: []profile.Cost{c}})
		}
		table := newTables(p).of("cpu", 1)
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		to := rapid.IntRange(from, n).Draw(t, "to")
		want := int64(0)
		for _, l := range p.Layers[from:to] {
			want = max(want, l.Costs[0].WorkspaceBytes, l.Costs[0].BackwardPeakBytes-3)
		}
		if got := table.work(from, to); got != want {
			t.Fatalf("layers %d to %d of %d: %d, looked at one by one %d", from, to, n, got, want)
		}
	})
}
