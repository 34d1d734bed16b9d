package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
)

// node is the description of a layer, before its shapes and costs are inferred.
type node struct {
	Name, Kind string
	From       []string
	Settings   map[string]any
	position   int // position in the description, from 0
}

// layerError is a mistake in one entry of a description.
type layerError struct {
	position int
	err      error
}

func (e *layerError) Error() string { return e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

// The largest tensors that a description may have, in elements: a layer's output for one sample, and one parameter.
// With these limits, sums of products of tensors' sizes fit into 64 bits.
const (
	maxSample    = 1 << 30
	maxParameter = 1 << 34
)

// fits says whether a shape has no empty dimension and at most `limit` elements. The calculation cannot overflow.
func fits(shape []int, limit int64) bool {
	n := int64(1)
	for _, d := range shape {
		if d < 1 || n > limit/int64(d) {
			return false
		}
		n *= int64(d)
	}
	return true
}

// checkSizes refuses an inferred layer whose tensors or work are too large.
func (l *Layer) checkSizes() error {
	for _, t := range l.Outputs {
		if !fits(t.Shape, maxSample) {
			return fmt.Errorf("it yields a sample of shape %v; 2^30 elements are the most", t.Shape)
		}
	}
	for _, p := range l.Params {
		if !fits(p.Shape, maxParameter) {
			return fmt.Errorf("its %s has shape %v; 2^34 elements are the most", p.Name, p.Shape)
		}
	}
	if min(l.ForwardFLOPs, l.InputFLOPs, l.WeightFLOPs, l.SavedBytes) < 0 {
		return fmt.Errorf("its work does not fit 64 bits; make it smaller")
	}
	return nil
}

// assemble checks a description and infers every layer. Nodes may come in any order. The result is in topological
// order, and in the order of the description where that is possible.
func assemble(name string, inputs []Tensor, nodes []node) (*Model, error) {
	for i := range nodes {
		nodes[i].position = i
	}
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
		fail := func(err error) error {
			return fmt.Errorf("model: %s: %w", name, &layerError{n.position, fmt.Errorf("layer %q: %w", n.Name, err)})
		}
		kind, err := kinds.Find(n.Kind)
		if err != nil {
			return nil, fail(err)
		}
		attr, err := settle("kind "+n.Kind, kind.Settings, n.Settings)
		if err != nil {
			return nil, fail(err)
		}
		l := Layer{Name: n.Name, Kind: n.Kind, From: n.From, Attr: attr}
		var in []Tensor
		var makers []string // for each tensor of `in`: the name of the layer or input that makes it
		for _, from := range n.From {
			in = append(in, known[from]...)
			makers = append(makers, slices.Repeat([]string{from}, len(known[from]))...)
		}
		if err := kind.Infer(&l, in); err != nil {
			return nil, fail(err)
		}
		if err := l.checkSizes(); err != nil {
			return nil, fail(err)
		}
		known[n.Name] = l.Outputs
		m.bound(kind, &l, in, makers)
		m.Layers = append(m.Layers, l)
	}
	if err := m.checkParameters(); err != nil {
		return nil, err
	}
	return m, nil
}

func topological(name string, inputs []Tensor, nodes []node) ([]node, error) {
	defined := map[string]bool{}
	for _, in := range inputs {
		defined[in.Name] = true
	}
	fail := func(i int, format string, args ...any) error {
		return fmt.Errorf("model: %s: %w", name, &layerError{i, fmt.Errorf(format, args...)})
	}
	for i, n := range nodes {
		if n.Name == "" || strings.ContainsAny(n.Name, " \t\r\n/") {
			return nil, fail(i, "layer %d is named %q; a name has letters and no spaces or slashes", i, n.Name)
		}
		if err := names.Check(n.Name); err != nil {
			return nil, fail(i, "layer %d has %w", i, err)
		}
		if defined[n.Name] {
			return nil, fail(i, "the name %q is used twice", n.Name)
		}
		defined[n.Name] = true
	}
	for i, n := range nodes {
		for _, from := range n.From {
			if !defined[from] {
				return nil, fail(i, "layer %q reads from %q, which no layer or input is named", n.Name, from)
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
			return nil, cycle(name, nodes, placed)
		}
	}
	return ordered, nil
}

// cycle names the layers of one cycle among those that could not be placed. Each such layer reads another such layer,
// so a path from layer to layer ends in a cycle.
func cycle(name string, nodes []node, placed map[string]bool) error {
	byName := map[string]node{}
	var at node
	for _, n := range nodes {
		byName[n.Name] = n
		if !placed[n.Name] {
			at = n
		}
	}
	var path []string
	for {
		if i := slices.Index(path, at.Name); i >= 0 {
			circle := append(path[i:], at.Name)
			return fmt.Errorf("model: %s: %w", name, &layerError{at.position,
				fmt.Errorf("layer %q is part of a cycle: %s", at.Name, strings.Join(circle, " reads "))})
		}
		path = append(path, at.Name)
		at = byName[at.From[slices.IndexFunc(at.From, func(f string) bool { return !placed[f] })]]
	}
}

// Check refuses a model whose layers are too large or whose parameters do not fit together. This can happen in a model
// that was put together by hand.
func (m *Model) Check() error {
	for i := range m.Layers {
		l := &m.Layers[i]
		if err := l.checkSizes(); err != nil {
			return fmt.Errorf("model: %s: layer %q: %w", m.Name, l.Name, err)
		}
	}
	return m.checkParameters()
}

// checkParameters refuses ties to a missing parameter, to a later layer, or to another shape. It also refuses two
// parameters with the same full name, because a checkpoint could not distinguish them.
func (m *Model) checkParameters() error {
	shapes := map[string][]int{}
	holder := map[string]string{}
	for _, l := range m.Layers {
		for i, p := range l.Params {
			full := l.ParamName(i)
			if other, taken := holder[full]; taken && p.Tied == "" {
				return fmt.Errorf("model: %s: layers %q and %q both have a parameter %q; name one of them otherwise", m.Name,
					other, l.Name, full)
			}
			if p.Tied == "" {
				holder[full] = l.Name
				shapes[full] = p.Shape
				continue
			}
			owner, ok := shapes[p.Tied]
			if !ok {
				return fmt.Errorf("model: %s: layer %q ties %s to %q, which no earlier layer owns", m.Name, l.Name, p.Name, p.Tied)
			}
			if !slices.Equal(owner, p.Shape) {
				return fmt.Errorf("model: %s: layer %q ties %s of shape %v to %q of shape %v; they must be the same", m.Name,
					l.Name, p.Name, p.Shape, p.Tied, owner)
			}
		}
	}
	return nil
}

// ParamName returns the full name of a layer's parameter, which checkpoints use.
func (l *Layer) ParamName(i int) string {
	if full := l.Params[i].Full; full != "" {
		return full
	}
	return l.Name + "." + l.Params[i].Name
}

// Owned returns the full name of a layer's parameter i, or of the parameter that it is tied to.
func (l *Layer) Owned(i int) string {
	if tied := l.Params[i].Tied; tied != "" {
		return tied
	}
	return l.ParamName(i)
}

// Target returns the name of the input with the targets. This is "target" or, if there is none, the last input.
func (m *Model) Target() string {
	name := ""
	for _, in := range m.Inputs {
		if name != "target" {
			name = in.Name
		}
	}
	return name
}

// Reported returns the names of the numbers that the last layer returns after the loss.
func (m *Model) Reported() []string {
	var names []string
	for i, t := range m.Layers[len(m.Layers)-1].Outputs {
		if i > 0 {
			names = append(names, t.Name)
		}
	}
	return names
}

// NormalisesMicroBatches returns the first layer that keeps statistics of its micro-batches, such as a batch norm. The
// results of such a layer depend on which rows are in a micro-batch. If there is none, it returns nil.
func (m *Model) NormalisesMicroBatches() *Layer {
	for i := range m.Layers {
		for _, p := range m.Layers[i].Params {
			if p.Buffer && !p.Frozen {
				return &m.Layers[i]
			}
		}
	}
	return nil
}

// ID returns a digest of the description. Profiles, plans and checkpoints contain it.
func (m *Model) ID() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic("model: a description that cannot be written: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Index returns the position of a layer, or -1 for a model input or an unknown name.
func (m *Model) Index(name string) int {
	return slices.IndexFunc(m.Layers, func(l Layer) bool { return l.Name == name })
}

// Live returns, in ascending order, the layers whose outputs cross the cut after layer `cut`. These are the layers up
// to the cut whose outputs a layer after the cut reads.
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

// Elements returns how many elements a tensor has for one sample.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// BytesPerSample returns a tensor's bytes for one sample, with 4 bytes for a float, 8 for an int and 1 for a bool.
func (t Tensor) BytesPerSample() int64 {
	switch t.DType {
	case Int:
		return 8 * t.Elements()
	case Bool:
		return t.Elements()
	}
	return 4 * t.Elements()
}

// OutputBytes returns the bytes of all outputs of a layer for one sample.
func (l *Layer) OutputBytes() int64 {
	var n int64
	for _, t := range l.Outputs {
		n += t.BytesPerSample()
	}
	return n
}

// ParameterElements returns the number of elements that a layer owns and learns. It does not count parameters that are
// tied to another layer's.
func (l *Layer) ParameterElements() int64 {
	var n int64
	for _, p := range l.Params {
		if p.Learned() && p.Tied == "" {
			n += Tensor{Shape: p.Shape}.Elements()
		}
	}
	return n
}

// ParameterElements returns the number of learned elements of the whole model.
func (m *Model) ParameterElements() int64 {
	var n int64
	for i := range m.Layers {
		n += m.Layers[i].ParameterElements()
	}
	return n
}

// CutBytes returns the bytes that cross the cut after a layer, for a micro-batch of this many samples.
func (m *Model) CutBytes(cut, samples int) int64 {
	var n int64
	for _, i := range m.Live(cut) {
		n += m.Layers[i].OutputBytes()
	}
	return n * int64(samples)
}

// TiedLayers returns a group of layers for each learned parameter that several layers share.
func (m *Model) TiedLayers() [][]int {
	groups := map[string][]int{}
	var owners []string
	for i, l := range m.Layers {
		for k, p := range l.Params {
			if !p.Learned() {
				continue
			}
			name := l.Owned(k)
			if groups[name] == nil {
				owners = append(owners, name)
			}
			if !slices.Contains(groups[name], i) {
				groups[name] = append(groups[name], i)
			}
		}
	}
	var out [][]int
	for _, name := range owners {
		if len(groups[name]) > 1 {
			out = append(out, groups[name])
		}
	}
	return out
}
