package rules

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/aten"
)

// TestLayersOfAllNetworksHoldTogether runs checkLayers on networks in many styles. A test of package model/imported
// counts at how many places these networks can be cut.
func TestLayersOfAllNetworksHoldTogether(t *testing.T) {
	through := 0
	for _, a := range torchtest.Run(t, slices.Concat(torchtest.Main(), torchtest.Styles())...) {
		g, weights, err := aten.Read(a.Model)
		if err != nil {
			t.Log(a.Name, a.Said)
			continue // the exporter refuses it
		}
		must(t, weights.Close())
		n, err := Normalise(g)
		if err != nil {
			t.Log(a.Name, err)
			continue
		}
		through++
		checkLayers(t, n)
		for i, l := range n.Layers {
			if _, err := n.Program(i, l.In); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
		}
	}
	if through < 30 {
		t.Errorf("%d networks go through", through)
	}
}
