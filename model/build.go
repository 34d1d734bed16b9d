package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// node is a layer as it is described, before inference.
type node struct {
	Name, Kind string
	From       []string
	Settings   map[string]any
}

// assemble checks a description and infers every layer. Nodes may come in any
// order; the order kept is topological, ties by position in the description.
func assemble(name string, inputs []Tensor, nodes []node) (*Model, error) {
	m := &Model{Name: name, Inputs: inputs}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("model: %s has no layers", name)
	}
	ordered, err := topological(name, inputs, nodes)
	if err != nil {
		return nil, err
	}
	known := map[string][]Tensor{}
	for _, in := range inputs {
		known[in.Name] = []Tensor{in}
	}
	for _, n := range ordered {
		fail := func(err error) error { return fmt.Errorf("model: %s: layer %q: %w", name, n.Name, err) }
		kind, ok := kinds[n.Kind]
		if !ok {
			var names []string
			for _, k := range Kinds() {
				names = append(names, k.Name)
			}
			return nil, fail(fmt.Errorf("there is no kind %q; there are %s", n.Kind, strings.Join(names, ", ")))
		}
		attr, err := settle("kind "+n.Kind, kind.Settings, n.Settings)
		if err != nil {
			return nil, fail(err)
		}
		l := Layer{Name: n.Name, Kind: n.Kind, From: n.From, Attr: attr}
		var in []Tensor
		for _, from := range n.From {
			in = append(in, known[from]...)
		}
		if err := kind.Infer(&l, in); err != nil {
			return nil, fail(err)
		}
		known[n.Name] = l.Outputs
		m.Layers = append(m.Layers, l)
	}
	return m, m.checkTies()
}

func topological(name string, inputs []Tensor, nodes []node) ([]node, error) {
	defined := map[string]bool{}
	for _, in := range inputs {
		defined[in.Name] = true
	}
	for i, n := range nodes {
		if n.Name == "" || strings.ContainsAny(n.Name, " \t\n/") {
			return nil, fmt.Errorf("model: %s: layer %d is named %q; a name has letters and no spaces or slashes", name, i, n.Name)
		}
		if defined[n.Name] {
			return nil, fmt.Errorf("model: %s: the name %q is used twice", name, n.Name)
		}
		defined[n.Name] = true
	}
	for _, n := range nodes {
		for _, from := range n.From {
			if !defined[from] {
				return nil, fmt.Errorf("model: %s: layer %q reads from %q, which no layer or input is named", name, n.Name, from)
			}
		}
	}
	var ordered []node
	placed := map[string]bool{}
	for _, in := range inputs {
		placed[in.Name] = true
	}
	for len(ordered) < len(nodes) {
		before := len(ordered)
		for _, n := range nodes {
			if !placed[n.Name] && !slices.ContainsFunc(n.From, func(f string) bool { return !placed[f] }) {
				placed[n.Name] = true
				ordered = append(ordered, n)
			}
		}
		if len(ordered) == before {
			for _, n := range nodes {
				if !placed[n.Name] {
					return nil, fmt.Errorf("model: %s: layer %q is part of a cycle: it reads, through others, from itself", name, n.Name)
				}
			}
		}
	}
	return ordered, nil
}

// checkTies refuses ties to nothing, to a later layer, or of another shape.
func (m *Model) checkTies() error {
	shapes := map[string][]int{}
	for _, l := range m.Layers {
		for _, p := range l.Params {
			if p.Tied == "" {
				shapes[l.Name+"."+p.Name] = p.Shape
				continue
			}
			owner, ok := shapes[p.Tied]
			if !ok {
				return fmt.Errorf("model: %s: layer %q ties %s to %q, which no earlier layer owns", m.Name, l.Name, p.Name, p.Tied)
			}
			if !slices.Equal(owner, p.Shape) {
				return fmt.Errorf("model: %s: layer %q ties %s of shape %v to %q of shape %v; they must be the same", m.Name, l.Name, p.Name, p.Shape, p.Tied, owner)
			}
		}
	}
	return nil
}

// ID is a digest of the description: profiles, plans and checkpoints carry it.
func (m *Model) ID() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic("model: a description that cannot be written: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Index is the position of a layer, or -1 for a model input or an unknown name.
func (m *Model) Index(name string) int {
	return slices.IndexFunc(m.Layers, func(l Layer) bool { return l.Name == name })
}

// Live lists the layers whose outputs cross the cut behind layer cut: those at or
// before it that a layer behind it reads. Ascending.
func (m *Model) Live(cut int) []int {
	var live []int
	for i := 0; i <= cut && i < len(m.Layers); i++ {
		for _, l := range m.Layers[cut+1:] {
			if slices.Contains(l.From, m.Layers[i].Name) {
				live = append(live, i)
				break
			}
		}
	}
	return live
}

// Elements is how many elements a tensor has for one sample.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// BytesPerSample of a tensor, at 4 bytes a float and 8 an int.
func (t Tensor) BytesPerSample() int64 {
	if t.DType == Int {
		return 8 * t.Elements()
	}
	return 4 * t.Elements()
}

// OutputBytes of one sample over all outputs of a layer.
func (l *Layer) OutputBytes() int64 {
	var n int64
	for _, t := range l.Outputs {
		n += t.BytesPerSample()
	}
	return n
}

// ParameterElements of a layer that it owns (buffers left out, tied uses left out).
func (l *Layer) ParameterElements() int64 {
	var n int64
	for _, p := range l.Params {
		if !p.Buffer && p.Tied == "" {
			n += Tensor{Shape: p.Shape}.Elements()
		}
	}
	return n
}

// ParameterElements of the whole model.
func (m *Model) ParameterElements() int64 {
	var n int64
	for i := range m.Layers {
		n += m.Layers[i].ParameterElements()
	}
	return n
}

// CutBytes is what crosses the cut behind a layer for a micro-batch of so many samples.
func (m *Model) CutBytes(cut, samples int) int64 {
	var n int64
	for _, i := range m.Live(cut) {
		n += m.Layers[i].OutputBytes()
	}
	return n * int64(samples)
}

// TiedStages groups, for layers cut into stages, the stages that share a parameter.
// stageOf is the stage of each layer. A parameter used within one stage only gives no group.
func (m *Model) TiedStages(stageOf []int) [][]int {
	groups := map[string][]int{}
	var owners []string
	for i, l := range m.Layers {
		for _, p := range l.Params {
			name := p.Tied
			if name == "" {
				name = l.Name + "." + p.Name
			}
			if groups[name] == nil {
				owners = append(owners, name)
			}
			if !slices.Contains(groups[name], stageOf[i]) {
				groups[name] = append(groups[name], stageOf[i])
			}
		}
	}
	var out [][]int
	for _, name := range owners {
		g := groups[name]
		slices.Sort(g)
		if len(g) > 1 && !slices.ContainsFunc(out, func(o []int) bool { return slices.Equal(o, g) }) {
			out = append(out, g)
		}
	}
	return out
}
