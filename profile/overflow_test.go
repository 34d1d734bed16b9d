package profile

import (
	"strings"
	"testing"
)

// TestProfilesWhoseSumsOverflowAreRefused: finite numbers whose sum would be infinite are refused, like infinite
// numbers.
func TestProfilesWhoseSumsOverflowAreRefused(t *testing.T) {
	for what, change := range map[string]func(*Layer){
		"forward_s is 1e+308":              func(l *Layer) { l.Costs[0].ForwardS = 1e308 },
		"update_s is 1e+10":                func(l *Layer) { l.UpdateS = 1e10 },
		"the bytes of all layers up to it": func(l *Layer) { l.ParameterBytes = 9e18 },
		"at most together":                 func(l *Layer) { l.Costs[0].SavedBytes = 6e14 },
	} {
		p := &Profile{Version: Version, Model: "m", ModelID: "m", Source: "measured"}
		for range 2 {
			l := Layer{Name: "a", Kind: "dense", TiedTo: -1, From: []int{-1},
				Costs: []Cost{{Device: "cpu", MicroBatch: 1, ForwardS: 1, BackwardS: 2}}}
			if err := p.Validate(); len(p.Layers) > 0 && err != nil && !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
			change(&l)
			p.Layers = append(p.Layers, l)
		}
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCopiesOfTheOptimizerAreCounted: the optimizer's copies are included in the bytes of layers. 2 copies of 1e14
// bytes are accepted, 21 are not.
func TestCopiesOfTheOptimizerAreCounted(t *testing.T) {
	p := &Profile{Version: Version, Model: "m", ModelID: "m", Source: "measured", Layers: []Layer{{
		Name: "a", Kind: "dense", TiedTo: -1, From: []int{-1}, ParameterBytes: 1e14,
		Costs: []Cost{{Device: "cpu", MicroBatch: 1, ForwardS: 1, BackwardS: 2}},
	}}}
	for states, fits := range map[int]bool{1: true, 20: false} {
		p.OptimizerStates = states
		if err := p.Validate(); (err == nil) != fits {
			t.Errorf("%d copies of 1e14 bytes: %v", states, err)
		}
	}
}
