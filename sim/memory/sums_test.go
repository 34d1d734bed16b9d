package memory

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"pgregory.net/rapid"
)

// layered returns a profile of n layers. Each reads the layer before it, and some also read an earlier one.
func layered(t *rapid.T, n int) *profile.Profile {
	bytes := rapid.Int64Range(0, 100)
	p := &profile.Profile{Version: profile.Version, Model: "m", OptimizerStates: rapid.IntRange(0, 2).Draw(t, "states")}
	for k := range n {
		l := profile.Layer{From: []int{k - 1}, TiedTo: -1, ParameterBytes: bytes.Draw(t, "parameters"),
			BufferBytes: bytes.Draw(t, "buffers")}
		if k > 1 && rapid.Bool().Draw(t, "skip") {
			l.From = append(l.From, rapid.IntRange(0, k-2).Draw(t, "from"))
		}
		l.Costs = []profile.Cost{{Device: "cpu", MicroBatch: 1, OutputBytes: bytes.Draw(t, "output"),
			SavedBytes:     bytes.Draw(t, "saved"),
			WorkspaceBytes: bytes.Draw(t, "workspace"), BackwardPeakBytes: 2 * bytes.Draw(t, "peak")}}
		p.Layers = append(p.Layers, l)
	}
	return p
}

// TestSumsHoldWhatStagesDo: without tied parameters and model inputs, Sums.Held equals the bytes that Of adds up
// layer by layer, plus the temporary bytes of the widest layer.
func TestSumsHoldWhatStagesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "layers")
		p := layered(t, n)
		costs, _, err := p.At("cpu", 1)
		if err != nil {
			t.Fatal(err)
		}
		s := SumsOf(p, costs)
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		to := rapid.IntRange(from+1, n).Draw(t, "to")
		inFlight := rapid.IntRange(1, 5).Draw(t, "in flight")
		held := Of(p, costs, plan.Stage{FirstLayer: from, LastLayer: to - 1}, plan.ShardNothing)
		widest := int64(0)
		for _, c := range costs[from:to] {
			widest = max(widest, c.WorkspaceBytes, c.BackwardPeakBytes-c.SavedBytes)
		}
		want := held.FixedBytes + held.ParameterBytes + int64(inFlight)*(held.InputBytes+held.SavedBytes) + widest
		if got := s.Held(from, to, inFlight, plan.KeepAll, Replicas{}); got != want {
			t.Errorf("layers %d to %d, %d in flight: %d, layer by layer %d", from, to, inFlight, got, want)
		}
		if got := s.Gradients[to] - s.Gradients[from]; got != held.ParameterBytes {
			t.Errorf("gradients of %d bytes, layer by layer %d", got, held.ParameterBytes)
		}
		// If every layer is a segment, the bytes that cross each cut are kept, and the activations of one layer are
		// held.
		kept, one := int64(0), int64(0)
		for l := from; l < to; l++ {
			if l > 0 {
				kept += p.CutBytes(costs, l-1)
			}
			one = max(one, costs[l].SavedBytes)
		}
		want = held.FixedBytes + held.ParameterBytes + int64(inFlight)*kept + one + widest
		if got := s.Held(from, to, inFlight, plan.Every(1), Replicas{}); got != want {
			t.Errorf("layers %d to %d, %d in flight, every layer again: %d, by hand %d", from, to, inFlight, got, want)
		}
	})
}

// TestTheWidestLayerOfARun: the search by groups of layers finds the same widest layer as a search over all layers.
func TestTheWidestLayerOfARun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5*blockOf).Draw(t, "layers")
		p := &profile.Profile{Version: profile.Version, Model: "m"}
		for k := range n {
			c := profile.Cost{Device: "cpu", MicroBatch: 1, SavedBytes: 3}
			if rapid.IntRange(0, 20).Draw(t, "wide") == 0 {
				c.WorkspaceBytes, c.BackwardPeakBytes = rapid.Int64Range(0, 1000).Draw(t,
					"workspace"), rapid.Int64Range(0, 1000).Draw(t, "peak")
			}
			p.Layers = append(p.Layers, profile.Layer{From: []int{k - 1}, TiedTo: -1, Costs: []profile.Cost{c}})
		}
		costs, _, err := p.At("cpu", 1)
		if err != nil {
			t.Fatal(err)
		}
		s := SumsOf(p, costs)
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		to := rapid.IntRange(from, n).Draw(t, "to")
		want := int64(0)
		for _, l := range p.Layers[from:to] {
			want = max(want, l.Costs[0].WorkspaceBytes, l.Costs[0].BackwardPeakBytes-3)
		}
		if got := s.Widest(from, to); got != want {
			t.Fatalf("layers %d to %d of %d: %d, looked at one by one %d", from, to, n, got, want)
		}
	})
}
