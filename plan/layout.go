package plan

import "slices"

// Devices lists the devices of a plan, ascending; worker i of its Program is the i-th.
func (p *Plan) Devices() []int {
	var devices []int
	for _, s := range p.Stages {
		devices = append(devices, s.Devices...)
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// StageOf is the stage of each of a model's layers.
func (p *Plan) StageOf(layers int) []int {
	of := make([]int, layers)
	for s, st := range p.Stages {
		for l := max(0, st.FirstLayer); l <= st.LastLayer && l < layers; l++ {
			at := l
			if len(p.Order) == layers {
				at = p.Order[l]
			}
			of[at] = s
		}
	}
	return of
}

// TiedStages groups the stages that share a parameter, of a model's groups of layers that do. A group within
// one stage is none.
func (p *Plan) TiedStages(tiedLayers [][]int) [][]int {
	layers := len(p.Order)
	for _, s := range p.Stages {
		layers = max(layers, s.LastLayer+1)
	}
	of := p.StageOf(layers)
	var out [][]int
	for _, group := range tiedLayers {
		var stages []int
		for _, l := range group {
			if l < layers {
				stages = append(stages, of[l])
			}
		}
		slices.Sort(stages)
		stages = slices.Compact(stages)
		known := func(other []int) bool { return slices.Equal(other, stages) }
		if len(stages) > 1 && !slices.ContainsFunc(out, known) {
			out = append(out, stages)
		}
	}
	return out
}
