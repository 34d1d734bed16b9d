package model

import "slices"

// Range says which whole numbers the elements of an input may be, because a layer takes them as indices.
type Range struct {
	Least, Most int64
	Skip        *int64 // one more allowed number, which the layer ignores; nil: none
	At          []int  // positions in a row that the range applies to, ascending; nil: all
	Only        bool   // layers read the input only as indices, and calculate nothing else from it
	For         string // the reason: "layer embed has a table of 50 rows"
}

// ignored is the class that PyTorch's cross entropy leaves out by default.
const ignored = -100

// bound adds a range to the model input that a layer reads as indices. from[i] is the name of the layer or input that
// makes in[i].
func (m *Model) bound(k Kind, l *Layer, in []Tensor, from []string) {
	if k.Range == nil {
		return
	}
	at, r := k.Range(l, in)
	r.Only = true // built-in kinds use integers only as indices
	of := func(t Tensor) bool { return t.Name == from[at] }
	if i := slices.IndexFunc(m.Inputs, of); i >= 0 {
		m.Inputs[i].Ranges = append(m.Inputs[i].Ranges, r)
	}
}
