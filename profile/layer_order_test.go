package profile

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOrderedKeepsTheGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, costs := drawDAG(t, 10)
		s, err := StatesOf(p, costs)
		if err != nil {
			t.Fatal(err)
		}
		var chain []int
		for i := range s.List {
			if (len(chain) == 0 || s.Before(chain[len(chain)-1], i)) && rapid.Bool().Draw(t, "cut") {
				chain = append(chain, i)
			}
		}
		order, ends := s.Order(chain)
		moved, err := p.Ordered(order)
		if err != nil {
			t.Fatal(err)
		}
		if err := moved.Validate(); err != nil {
			t.Fatal(err)
		}
		for c, i := range chain {
			if got := slices.Sorted(slices.Values(order[:ends[c]])); !slices.Equal(got, s.Layers(i)) {
				t.Fatalf("cut %d ends behind %v, not %v", c, got, s.Layers(i))
			}
		}
		for at, l := range order {
			if moved.Layers[at].Name != p.Layers[l].Name || len(moved.Layers[at].From) != len(p.Layers[l].From) {
				t.Fatalf("position %d is %+v", at, moved.Layers[at])
			}
			for k, from := range p.Layers[l].From {
				if from >= 0 && order[moved.Layers[at].From[k]] != from {
					t.Fatalf("position %d reads %v", at, moved.Layers[at].From)
				}
			}
		}
	})
	p, _ := dag([][]int{{}, {0}, {1}}, make([]float64, 3), make([]int64, 3), make([]int64, 3))
	for want, order := range map[string][]int{
		"the order has 2 layers":                    {0, 1},
		"layers 0 to 2":                             {0, 1, 3},
		"layer 1 (n1) at positions 1 and 2":         {0, 1, 1},
		"before layer 1 (n1), whose output it read": {0, 2, 1},
	} {
		if _, err := p.Ordered(order); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", order, err, want)
		}
	}
}
