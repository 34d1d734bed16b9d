package tight

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
)

// TestASmallCaseIsOneOfAllItsPlans: of s2vt on servers with one port the gap is large. All plans of the shrunken case
// are simulated, and none of them is below its bound.
func TestASmallCaseIsOneOfAllItsPlans(t *testing.T) {
	c, err := cluster.Preset("pipedream-a")
	if err != nil {
		t.Fatal(err)
	}
	p, err := roofline("s2vt", c, 64)
	if err != nil {
		t.Fatal(err)
	}
	small, err := shrunken(context.Background(), p, c, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *small)
	if small.BestS < small.BoundS*(1-1e-9) || small.Plans < 5_000 {
		t.Errorf("%d plans, the best takes %g s; the bound is %g", small.Plans, small.BestS, small.BoundS)
	}
}

// TestShrinkingKeepsProportions: a device of four computes as long of a sample as one of sixteen on average, and layers
// of the small case have an eighth of the parameters.
func TestShrinkingKeepsProportions(t *testing.T) {
	c, err := cluster.Preset("dapple-c")
	if err != nil {
		t.Fatal(err)
	}
	p, err := roofline("vgg16", c, 64)
	if err != nil {
		t.Fatal(err)
	}
	small := merge(p, c, 4, 8)
	var parameters, smaller int64
	work, less := 0.0, 0.0
	for _, l := range p.Layers {
		parameters += l.ParameterBytes
		work += l.Costs[0].ForwardS + l.Costs[0].BackwardS
	}
	for _, l := range small.Layers {
		smaller += l.ParameterBytes
		less += l.Costs[0].ForwardS + l.Costs[0].BackwardS
	}
	if len(small.Layers) != smallLayers || math.Abs(less*4-work) > 1e-9*work ||
		math.Abs(float64(8*smaller)-float64(parameters)) > 1e-3*float64(parameters) {
		t.Errorf("%d layers of %g s and %d bytes, of %g s and %d", len(small.Layers), less, smaller, work, parameters)
	}
	if f := few(c); len(f.Levels) != 1 || f.Levels[0].Size != smallDevices || len(f.Devices) != smallDevices {
		t.Errorf("four devices are %+v", f)
	}
}

// TestEveryPlanIsListedOnce: of four devices that are alike there are, by hand, 4 plans of one stage in turn (1 to 4
// devices), and as many with slices but of one device.
func TestEveryPlanIsListedOnce(t *testing.T) {
	c, err := cluster.Preset("dapple-c")
	if err != nil {
		t.Fatal(err)
	}
	seen, ones := map[string]bool{}, 0
	everyPlan([]int{8}, few(c), func(pl *plan.Plan) bool {
		key := fmt.Sprintf("%+v %s", pl.Stages, pl.Replication)
		if seen[key] {
			t.Errorf("%s twice", key)
		}
		if seen[key] = true; len(pl.Stages) == 1 {
			ones++
		}
		return true
	})
	if ones != 4+3 {
		t.Errorf("%d plans of one stage; there are 7", ones)
	}
}

func TestResultsAreCounted(t *testing.T) {
	c, err := Ask(context.Background(), "s2vt", "dapple-b", 64, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r := &Results{Head: record.Begin("bound", "a test"), Batch: 64, Cases: []Case{c}}
	if r.End(); r.Recount() != nil || r.MeanGap != c.Gap || c.Gap < -plan.SameTime {
		t.Errorf("%+v: %v", r, r.Recount())
	}
	if r.MeanGap++; r.Recount() == nil {
		t.Error("a wrong mean is not refused")
	}
}
