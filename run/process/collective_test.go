package process

import (
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/stage"
)

// In messages, each parameter of a model has a number of its own. An imported layer may have hundreds of parameters.
func TestParametersHaveNumbersOfTheirOwn(t *testing.T) {
	layers := []model.Layer{{Params: make([]model.Param, 300)}, {}, {Params: make([]model.Param, 1)},
		{Params: make([]model.Param, 257)}}
	net := &Network{Graph: &stage.Graph{Model: &model.Model{Layers: layers}}}
	seen := map[uint32][2]int{}
	for l := range layers {
		for i := range layers[l].Params {
			n := net.number(&stage.Param{Layer: l, Index: i})
			if of, twice := seen[n]; twice {
				t.Fatalf("parameter %d of layer %d has the number %d, as parameter %d of layer %d has", i, l, n, of[1], of[0])
			}
			seen[n] = [2]int{l, i}
		}
	}
}
