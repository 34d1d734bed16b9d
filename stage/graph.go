package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/model"
)

// Graph says which layer reads and makes which values of a model. Values are numbered: first the model's inputs,
// then each layer's outputs in order.
type Graph struct {
	Model  *model.Model
	values []value
	reads  [][]int // by layer: the values that it reads, in the order of its inputs
	makes  [][]int // by layer: the values that it makes
}

// value is one tensor of a model: an input of the model, or an output of a layer.
type value struct {
	name     string // "block0.mlp.out": layer and output, or the model input
	layer    int    // the layer that makes it; -1 for a model input
	output   int    // its index among the layer's outputs, or among the model inputs
	lastUse  int    // the last layer that reads it; -1 if none does
	gradient bool   // whether a gradient flows through it
}

// NewGraph connects the layers of a model.
func NewGraph(m *model.Model) (*Graph, error) {
	g := &Graph{Model: m, reads: make([][]int, len(m.Layers)), makes: make([][]int, len(m.Layers))}
	byName := map[string][]int{}
	for i, t := range m.Inputs {
		byName[t.Name] = []int{len(g.values)}
		g.values = append(g.values, value{name: t.Name, layer: -1, output: i, lastUse: -1})
	}
	for l := range m.Layers {
		layer := &m.Layers[l]
		learns := slices.ContainsFunc(layer.Params, func(p model.Param) bool { return p.Learned() })
		for _, from := range layer.From {
			ids, ok := byName[from]
			if !ok {
				return nil, fmt.Errorf("stage: layer %s reads %q, which no layer before it and no input is called", layer.Name,
					from)
			}
			for _, v := range ids {
				g.values[v].lastUse = l
				learns = learns || g.values[v].gradient
			}
			g.reads[l] = append(g.reads[l], ids...)
		}
		for k, out := range layer.Outputs {
			g.makes[l] = append(g.makes[l], len(g.values))
			g.values = append(g.values, value{
				name: layer.Name + "." + out.Name, layer: l, output: k, lastUse: -1, gradient: learns && out.DType == model.Float,
			})
		}
		byName[layer.Name] = g.makes[l]
	}
	return g, nil
}

// cut returns the values that cross the border before a layer, ascending: values that an earlier layer makes and
// this layer or a later one reads. Model inputs are not among them; they are loaded wherever they are read.
func (g *Graph) cut(layer int) []int {
	var live []int
	for v := range g.values {
		if x := &g.values[v]; x.layer >= 0 && x.layer < layer && x.lastUse >= layer {
			live = append(live, v)
		}
	}
	return live
}

// needs returns the model inputs that layers `first` to `last` read.
func (g *Graph) needs(first, last int) []int {
	var ids []int
	for l := first; l <= last; l++ {
		for _, v := range g.reads[l] {
			if g.values[v].layer < 0 && !slices.Contains(ids, v) {
				ids = append(ids, v)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// IsFloat says whether a value consists of floating-point numbers.
func (g *Graph) IsFloat(v int) bool {
	x := &g.values[v]
	if x.layer < 0 {
		return g.Model.Inputs[x.output].DType == model.Float
	}
	return g.Model.Layers[x.layer].Outputs[x.output].DType == model.Float
}

// Name returns the value's name on the wire.
func (g *Graph) Name(v int) string { return g.values[v].name }

// Find returns the value with this name, or -1.
func (g *Graph) Find(name string) int {
	return slices.IndexFunc(g.values, func(x value) bool { return x.name == name })
}
