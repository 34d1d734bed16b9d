package plan

import "testing"

// TestPlansThatTrainAlike: what is decided tells plans apart; who decided it, and what was predicted, does not. Without
// replicas it makes no difference how these would divide the work.
func TestPlansThatTrainAlike(t *testing.T) {
	own := func() *Plan {
		return &Plan{Schedule: "1f1b", Replication: "split", MicroBatch: 8, MicroBatches: 4, Planner: "auto",
			Stages: []Stage{{Devices: []int{0}, Warmup: 2}, {FirstLayer: 1, LastLayer: 1, Devices: []int{1}, Warmup: 1}}}
	}
	for name, c := range map[string]struct {
		change func(p *Plan)
		same   bool
	}{
		"found by another planner": {func(p *Plan) { p.Planner, p.Why = "dapple", []string{"it is short"} }, true},
		"predicted":                {func(p *Plan) { p.Predicted = &Predicted{StepS: 1} }, true},
		"in the profile's order":   {func(p *Plan) { p.Order = []int{0, 1} }, true},
		"no replicas to divide":    {func(p *Plan) { p.Replication = "round_robin" }, true},
		"in another order":         {func(p *Plan) { p.Order = []int{1, 0} }, false},
		"on other workers":         {func(p *Plan) { p.Stages[0].Devices = []int{2} }, false},
		"at another depth":         {func(p *Plan) { p.Stages[0].Warmup = 1 }, false},
		"with recompute":           {func(p *Plan) { p.Stages[1].Recompute = KeepInput }, false},
		"under another schedule":   {func(p *Plan) { p.Schedule = "afab" }, false},
		"in pipelines":             {func(p *Plan) { p.Elastic = NewElastic(2) }, false},
	} {
		p := own()
		if c.change(p); p.Same(own()) != c.same || own().Same(p) != c.same {
			t.Errorf("%s: the same is %v; want %v", name, !c.same, c.same)
		}
	}
}
