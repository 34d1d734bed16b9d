package shape

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Plan is a prediction as a plan of the cluster's groups: replicas of a stage take slices of micro-batches. What a plan
// has no field for, who divides what and recompute of parts of blocks, stands in its sentences. Shapes that no Program
// can be written of, like replicas of interleaved stages, are refused.
func (p *Prediction) Plan(m *model.Model, c *cluster.Cluster) (*plan.Plan, error) {
	s := p.Shape
	d := s.Device(c)
	units, err := s.units(m, c.Devices[0], d)
	if err != nil {
		return nil, err
	}
	cuts, err := s.place(units)
	if err != nil {
		return nil, err
	}
	first := []int{} // of each unit, its first layer
	at := "\x00"
	for i := range m.Layers {
		if b := blockOf(m.Layers[i].Name); b != at {
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
	again := plan.KeepAll
	if s.Recompute == "full" { // a block at a time
		again = plan.Every(blockLayers(m))
	}
	for k, on := range s.placement() {
		st := plan.Stage{Recompute: again, FirstLayer: first[cuts[k]], LastLayer: first[cuts[k+1]] - 1}
		for r := range s.Replicas {
			st.Devices = append(st.Devices, on[0]*s.Replicas+r)
		}
		out.Stages = append(out.Stages, st)
	}
	if s.Stages == 1 {
		out.Schedule = roles.Undivided().Name
	}
	out.Why = []string{fmt.Sprintf("of the shapes that were asked for this is the fastest that fits: %v, %.4g s a step", s,
		p.StepS)}
	out.Why = append(out.Why, s.unsaid()...)
	if err := out.Validate(); err != nil {
		return nil, err
	}
	if _, err := programs.Build(out, m.TiedLayers(), false, 1); err != nil {
		return nil, fmt.Errorf("shape: %v cannot be written as a plan: %w", s, err)
	}
	return out, nil
}

// unsaid is what a plan has no field for, so that who simulates it comes to another step.
func (s Shape) unsaid() (all []string) {
	say := func(is bool, what string) {
		if is {
			all = append(all, what)
		}
	}
	say(s.Recompute == "full", "its blocks alone are computed again; a plan's stages compute embedding, head and loss "+
		"again too, so that simulate is slower")
	say(s.Recompute != "full" && s.Recompute != "none", "recompute "+s.Recompute+" is of parts of layers, which plans "+
		"have not: simulate keeps all, and is faster")
	say(s.Shard != "none", "replicas divide what they keep ("+s.Shard+"), which plans do not say: simulate has all of it "+
		"on each")
	say(s.Behind, "gradients are summed behind the step, which plans do not say: simulate hides them behind backwards")
	return all
}

// blockLayers is how many layers the largest block has.
func blockLayers(m *model.Model) (most int) {
	of := map[string]int{}
	for i := range m.Layers {
		if b := blockOf(m.Layers[i].Name); b != "" {
			of[b]++
			most = max(most, of[b])
		}
	}
	return most
}
