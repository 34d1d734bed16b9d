package profile

import (
	"slices"

	"github.com/millrace-ml/millrace/model"
)

// Describe returns the part of a profile that follows from the model's description alone.
func Describe(m *model.Model) *Profile {
	p := &Profile{Version: Version, Model: m.Name, ModelID: m.ID()}
	readers := frozenReaders(m)
	for i, l := range m.Layers {
		layer := Layer{Name: l.Name, Kind: l.Kind, ParameterBytes: 4 * l.ParameterElements(), TiedTo: -1}
		for _, from := range l.From {
			layer.From = append(layer.From, m.Index(from))
			for _, t := range m.Inputs {
				if t.Name == from {
					layer.Feeds = append(layer.Feeds, Feed{Name: t.Name, BytesPerSample: t.BytesPerSample()})
				}
			}
		}
		for k, q := range l.Params {
			bytes := model.Tensor{Shape: q.Shape, DType: q.DType}.BytesPerSample()
			name := l.Owned(k)
			switch {
			case q.Frozen && readers[name] > 1:
				if !slices.Contains(layer.FrozenShared, Shared{name, bytes}) {
					layer.FrozenShared = append(layer.FrozenShared, Shared{name, bytes})
				}
			case q.Frozen && q.Tied == "":
				layer.FrozenBytes += bytes
			case q.Buffer && q.Tied == "":
				layer.BufferBytes += bytes
			case q.Learned() && q.Tied != "":
				layer.TiedTo = ownerOf(m, q.Tied)
				layer.TiedBytes += 4 * model.Tensor{Shape: q.Shape}.Elements()
			}
		}
		if f, can := m.Features(i); can {
			layer.Features = f.Count
		}
		for _, out := range l.Outputs {
			if out.DType == model.Float {
				layer.FloatOutputs = append(layer.FloatOutputs, out.Elements())
			} else {
				layer.WholeOutputBytes += out.BytesPerSample()
			}
		}
		p.Layers = append(p.Layers, layer)
	}
	for i := range p.Layers[:len(p.Layers)-1] { // the last layer makes the loss and has a backward
		l := &p.Layers[i]
		l.NoGradient = !slices.ContainsFunc(m.Layers[i].Params, func(q model.Param) bool { return q.Learned() }) &&
			!slices.ContainsFunc(l.From, func(from int) bool { return from >= 0 && !p.Layers[from].NoGradient })
	}
	return p
}

// frozenReaders returns how many layers read each frozen tensor. The key is the tensor's full name in the layer that
// owns it.
func frozenReaders(m *model.Model) map[string]int {
	readers := map[string]int{}
	for _, l := range m.Layers {
		seen := map[string]bool{}
		for k, q := range l.Params {
			if name := l.Owned(k); q.Frozen && !seen[name] {
				seen[name] = true
				readers[name]++
			}
		}
	}
	return readers
}

// ownerOf returns the layer that owns a parameter, given its full name.
func ownerOf(m *model.Model, full string) int {
	for i, l := range m.Layers {
		for k, p := range l.Params {
			if p.Tied == "" && l.ParamName(k) == full {
				return i
			}
		}
	}
	return -1
}
