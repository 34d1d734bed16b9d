package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Features says how a layer can be divided. The layer computes Count features, each from one row of its first
// parameters.
type Features struct {
	Count int
	Dim   int // dimension of a sample's output that holds the features
	// Params is how many of the layer's first parameters have the features as their first dimension. The layer may have
	// a norm or an activation after its product. The norm or activation is not divided, and neither are its parameters.
	Params int
}

// Piece is a part of a layer, computed by one stage.
type Piece struct {
	Of         string // the layer's name in the undivided model
	First, End int    // its features, End not included
	Features          // all features of the undivided layer
	Before     int    // number of earlier pieces of the layer
}

// Last says whether p is the last piece of its layer. The last piece joins the features of all pieces.
func (p *Piece) Last() bool { return p.End == p.Count }

// Rows says which rows of a parameter a piece has: rows First to End-1. The whole parameter has Of rows.
type Rows struct {
	Name           string // name of the whole parameter
	First, End, Of int
}

// Shape returns the shape of the whole parameter. The argument `shape` is the shape of the piece's rows.
func (r *Rows) Shape(shape []int) []int {
	whole := slices.Clone(shape)
	whole[0] = r.Of
	return whole
}

// PartName names a range of a parameter's rows, such as "dense1.weight[0:24]", as checkpoints do. The pieces of a layer
// are named in the same way.
func PartName(whole string, first, end int) string {
	return fmt.Sprintf("%s[%d:%d]", whole, first, end)
}

// PartOf splits a name made by PartName.
func PartOf(name string) (whole string, first, end int, ok bool) {
	at := strings.LastIndexByte(name, '[') // the parameter's own name may contain a bracket too
	if at < 1 {
		return "", 0, 0, false
	}
	whole = name[:at]
	from, to, _ := strings.Cut(strings.TrimSuffix(name[at+1:], "]"), ":")
	first, errFirst := strconv.Atoi(from)
	end, errEnd := strconv.Atoi(to)
	ok = errFirst == nil && errEnd == nil && first >= 0 && first < end && PartName(whole, first, end) == name
	return whole, first, end, ok
}

// Features says whether and how a layer can be divided. The layer must have at least 2 features, and no other layer may
// share its parameters.
func (m *Model) Features(layer int) (f Features, can bool) {
	l := &m.Layers[layer]
	f, can = l.features()
	for k := range l.Params {
		can = can && !m.shares(l, k)
	}
	return f, can
}

// shares says whether other layers have parameter k of a layer.
func (m *Model) shares(of *Layer, k int) bool {
	if of.Params[k].Tied != "" {
		return true
	}
	name := of.ParamName(k)
	return slices.ContainsFunc(m.Layers, func(l Layer) bool {
		return slices.ContainsFunc(l.Params, func(p Param) bool { return p.Tied == name })
	})
}

func (l *Layer) features() (f Features, can bool) {
	if l.Divides != nil {
		return *l.Divides, l.Divides.Count > 1
	}
	kind, err := kinds.Find(l.Kind)
	if err != nil || kind.Features == nil {
		return f, false
	}
	f = kind.Features(l)
	return f, f.Count > 1
}

// Cut returns where the parts of a layer end, each as the number of the first feature after the part. The argument
// `parts` has fractions that add up to 1.
func Cut(parts []float64, features int) []int {
	ends, sum := make([]int, len(parts)), 0.0
	for i, part := range parts {
		sum += part
		ends[i] = int(math.Round(sum * float64(features)))
	}
	ends[len(ends)-1] = features
	return ends
}

// Divide returns the model with each layer divided into pieces. Every piece is a layer of its own (BaPipe, §3.3.2). For
// each layer, the argument `parts` has a list with the fractions of the layer's pieces, which add up to 1.
//
// A piece reads the same tensors as its layer, and computes some of the features from its rows of the parameters; Cut
// says which. The last piece also reads the features of the other pieces. It joins all features, and does what the
// layer does after its product. It keeps the layer's name, so other layers that read the layer read the last piece.
// Three things cross a boundary inside a layer: the layer's input, the features computed so far, and the gradients of
// both.
//
// Divide refuses parts for another number of layers, and parts without any features. It also refuses to divide layers
// of kinds without features and layers that share parameters.
func (m *Model) Divide(parts [][]float64) (*Model, error) {
	if len(parts) != len(m.Layers) {
		return nil, fmt.Errorf("model: %s has %d layers; parts of %d are given", m.Name, len(m.Layers), len(parts))
	}
	divided := *m
	divided.Layers, divided.Positions = nil, nil
	for i := range m.Layers {
		pieces := []Layer{m.Layers[i]}
		if len(parts[i]) != 1 {
			var err error
			if pieces, err = m.pieces(&m.Layers[i], parts[i]); err != nil {
				return nil, err
			}
		}
		for _, l := range pieces {
			divided.Layers, divided.Positions = append(divided.Layers, l), append(divided.Positions, m.Position(i))
		}
	}
	return &divided, nil
}

// Position returns the position that a layer, or the layer of a piece, has in the undivided model. Initial values
// and random masks depend on it.
func (m *Model) Position(layer int) int {
	if m.Positions == nil {
		return layer
	}
	return m.Positions[layer]
}

// Whole returns the layer's name in the undivided model.
func (l *Layer) Whole() string {
	if l.Piece == nil {
		return l.Name
	}
	return l.Piece.Of
}

func (m *Model) pieces(l *Layer, parts []float64) ([]Layer, error) {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("model: %s: layer %q cannot be divided between stages: %w", m.Name, l.Name,
			fmt.Errorf(format, args...))
	}
	f, can := l.features()
	if len(parts) == 0 {
		return nil, refuse("it has no part")
	}
	if !can {
		return nil, refuse("it is of kind %s; layers of 2 features or more can be, of kinds %s, and of imported networks "+
			"one linear or one convolution", l.Kind, strings.Join(dividedKinds(), " and "))
	}
	for k := range l.Params {
		if m.shares(l, k) {
			sharers := m.sharers(l, k)
			return nil, refuse("layers %s share %s, of which each stage would have rows", strings.Join(sharers, " and "),
				l.Owned(k))
		}
	}
	var out []Layer
	first := 0
	for i, end := range Cut(parts, f.Count) {
		if end <= first {
			return nil, refuse("part %d of %v is none of its %d features", i+1, parts, f.Count)
		}
		out = append(out, l.piece(Piece{Of: l.Name, First: first, End: end, Features: f, Before: i}))
		first = end
	}
	last := &out[len(out)-1]
	for _, other := range out[:len(out)-1] {
		last.From = append(last.From, other.Name)
	}
	return out, nil
}

// piece makes one piece, which reads what the whole layer reads.
func (l *Layer) piece(at Piece) Layer {
	out := *l
	out.Piece, out.From, out.Params = &at, slices.Clone(l.From), nil
	share := func(n int64) int64 { return n * int64(at.End-at.First) / int64(at.Count) }
	out.ForwardFLOPs, out.InputFLOPs, out.WeightFLOPs = share(l.ForwardFLOPs), share(l.InputFLOPs), share(l.WeightFLOPs)
	for i, p := range l.Params {
		if i < at.Params {
			name := l.ParamName(i)
			p.Rows = &Rows{Name: name, First: at.First, End: at.End, Of: at.Count}
			p.Full, p.Also = PartName(name, at.First, at.End), nil
			p.Shape = slices.Clone(p.Shape)
			p.Shape[0] = at.End - at.First
		} else if !at.Last() {
			continue
		}
		out.Params = append(out.Params, p)
	}
	if at.Last() {
		return out
	}
	out.Name = PartName(l.Name, at.First, at.End)
	made := l.Outputs[0]
	made.Shape = slices.Clone(made.Shape)
	made.Shape[at.Dim] = at.End - at.First
	out.Outputs = []Tensor{made}
	out.SavedBytes = made.BytesPerSample()
	return out
}

// sharers returns the names of the layers that have parameter k of a layer, including this layer.
func (m *Model) sharers(of *Layer, k int) (layers []string) {
	for i := range m.Layers {
		l := &m.Layers[i]
		for j := range l.Params {
			if l.Owned(j) == of.Owned(k) {
				layers = append(layers, l.Name)
				break
			}
		}
	}
	return layers
}

func dividedKinds() (names []string) {
	for _, k := range Kinds() {
		if k.Features != nil {
			names = append(names, k.Name)
		}
	}
	return names
}
