package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
)

// Devices lists the devices of a plan, ascending. Worker i of the plan's Program runs on the i-th of them.
func (p *Plan) Devices() []int {
	var devices []int
	for _, s := range p.Stages {
		devices = append(devices, s.Devices...)
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// StageOf returns the stage of each of a model's layers. For a divided layer, it gives the last of the layer's stages.
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

// TiedStages returns the groups of stages that share a parameter, from the groups of layers that share one. It
// leaves out groups within one stage.
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

// On records in the plan the cluster that it is for.
func (p *Plan) On(c *cluster.Cluster) {
	p.Cluster, p.Hardware = c.Name, strings.Split(strings.TrimSuffix(c.Text(), "\n"), "\n")
}

// For returns the cluster that the plan is for, or nil if the plan has no copy of one.
func (p *Plan) For() (*cluster.Cluster, error) {
	if len(p.Hardware) == 0 {
		return nil, nil
	}
	c, err := cluster.Parse(strings.NewReader(strings.Join(p.Hardware, "\n")))
	if err != nil {
		return nil, fmt.Errorf("plan: hardware: %w", err)
	}
	if d := p.Devices(); d[len(d)-1] >= len(c.Devices) {
		return nil, fmt.Errorf("plan: it has a worker on device %d; its hardware has %d devices", d[len(d)-1], len(c.Devices))
	}
	return c, nil
}
