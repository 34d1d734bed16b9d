package plan_test

import (
	"reflect"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestLayout has a plan of two stages that share device 4, with the layers in another order than the model's.
func TestLayout(t *testing.T) {
	p := &plan.Plan{
		Order: []int{2, 0, 1, 3},
		Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, Devices: []int{4, 1}},
			{FirstLayer: 2, LastLayer: 3, Devices: []int{4}}},
	}
	if got := p.Devices(); !reflect.DeepEqual(got, []int{1, 4}) {
		t.Errorf("devices %v", got)
	}
	if got := p.StageOf(4); !reflect.DeepEqual(got, []int{0, 1, 0, 1}) {
		t.Errorf("stages of the layers %v", got)
	}
	// Layers 0 and 2 are on one stage. {0, 1} and {3, 2} both tie the two stages.
	if got := p.TiedStages([][]int{{0, 2}, {0, 1}, {3, 2}}); !reflect.DeepEqual(got, [][]int{{0, 1}}) {
		t.Errorf("tied stages %v", got)
	}
	if got := p.TiedStages(nil); got != nil {
		t.Errorf("no ties are %v", got)
	}
}
