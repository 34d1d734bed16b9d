package shape

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Plan converts a prediction to a plan for the cluster's groups. In the plan, the replicas of a stage take slices of
// micro-batches. Plan returns an error for shapes without a Program, such as replicas of interleaved stages. It also
// returns an error if a plan cannot express a setting, such as a kind of recompute.
func (p *Prediction) Plan(m *model.Model, c *cluster.Cluster) (*plan.Plan, error) {
	s := p.Shape
	if s.Replicas > 1 && s.Chunks > 1 {
		return nil, fmt.Errorf("shape: %v cannot be written as a plan: in a plan, stages of %s have no replicas", s,
			s.Schedule)
	}
	d := s.Device(c)
	units, err := s.units(m, c.Devices[0], d)
	if err != nil {
		return nil, err
	}
	cuts, err := s.place(units)
	if err != nil {
		return nil, err
	}
	first := []int{} // first layer of each unit
	at := "\x00"
	for i := range m.Layers {
		if b := plan.BlockOf(m.Layers[i].Name); b != at {
			first = append(first, i)
			at = b
		}
	}
	first = append(first, len(m.Layers))
	out := &plan.Plan{
		Version: plan.Version, Model: m.Name, ModelID: m.ID(), Cluster: c.Name, Replication: "split",
		MicroBatch: s.MicroBatch * s.Replicas, MicroBatches: s.MicroBatches(), Schedule: s.Schedule,
		Weights: string(schedule.Sync), Planner: "shape",
		Objective: plan.Objective{Name: "step of a shape", Value: p.StepS, Unit: "s"},
	}
	if s.Precision != "f32" {
		out.Precision = s.Precision
	}
	if s.Tensor > 1 {
		out.Tensor = &plan.Tensor{Devices: s.Tensor, SequenceParallel: s.SequenceParallel}
	}
	for k, on := range s.placement() {
		st := plan.Stage{FirstLayer: first[cuts[k]], LastLayer: first[cuts[k+1]] - 1}
		for r := range s.Replicas {
			st.Devices = append(st.Devices, on[0]*s.Replicas+r)
		}
		out.Stages = append(out.Stages, st)
	}
	if s.Stages == 1 {
		out.Schedule = roles.Undivided().Name
	}
	out.Why = []string{fmt.Sprintf("of the shapes that were predicted this is the fastest that fits and that a plan can "+
		"express: %v, %s a step", s, terminal.Duration(p.StepS))}
	if err := s.words(out); err != nil {
		return nil, err
	}
	if err := out.Validate(); err != nil {
		return nil, err
	}
	if _, err := programs.Build(out, m.TiedLayers(), false, 1); err != nil {
		return nil, fmt.Errorf("shape: %v cannot be written as a plan: %w", s, err)
	}
	return out, nil
}

// words copies a shape's recompute, shard and gradient settings into a plan.
func (s Shape) words(out *plan.Plan) error {
	again, known := map[string]plan.Recompute{"none": plan.KeepAll, "full": plan.Blocks,
		"selective": plan.Selective}[s.Recompute]
	if !known {
		return fmt.Errorf("shape: recompute %s has no word in a plan, whose stages recompute nothing, blocks, or scores of "+
			"attention: write a shape of none, full or selective", s.Recompute)
	}
	for i := range out.Stages {
		out.Stages[i].Recompute = again
	}
	if s.GradientBytes > 0 || s.WeightBytes > 0 || s.NoFlush || s.AsyncTensor || s.WeightsAhead || s.Room > 0 {
		return fmt.Errorf("shape: %v sums %d bytes a gradient, gathers %d a weight, goes on without a flush, hides "+
			"sums of groups, gathers weights ahead or has an order of its own, which plans have no words for", s,
			s.GradientBytes, s.WeightBytes)
	}
	var err error
	out.Shard, err = plan.ParseShard(s.Shard)
	if s.Behind {
		out.Gradients = plan.GradientsBehind
	}
	return err
}

// Beside compares the simulator's prediction for a shape's plan with the shape's own prediction, and says what the
// simulator counts differently.
func Beside(p *Prediction, pl *plan.Plan) string {
	counts := "counts gradients only once a backward makes them, and adds what operators need while they run"
	switch {
	case pl.Shard.Weights():
		counts += " and the gathered weights and gradients of a block"
	case pl.Shard.Gradients():
		counts += " and the gradients of a block, until they are scattered"
	}
	if p.Shape.Replicas > 1 && !p.Shape.Behind && !pl.Shard.Gradients() {
		counts = "sums gradients bucket by bucket, by rings whose messages go in step, " + counts
	}
	return fmt.Sprintf("the prediction is simulated: %s and %s on the fullest device; shapes are ranked by closed forms, "+
		"which say %s and %s: the simulator %s", terminal.Duration(pl.Predicted.StepS),
		terminal.Bytes(slices.Max(pl.Predicted.MemoryBytes)/int64(p.Shape.Tensor)), terminal.Duration(p.StepS),
		terminal.Bytes(slices.Max(p.MemoryBytes)), counts)
}
