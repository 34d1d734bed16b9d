package model

import "slices"

// Range says which whole numbers elements of an input may be, where a layer takes them as indices.
type Range struct {
	Least, Most int64
	Skip        *int64 // one more that may stand there, and is left out; nil: none
	At          []int  // elements of a row that it holds for, ascending; nil: all
	Only        bool   // layers read the input as indices, and calculate nothing else of it
	For         string // why: "layer embed has a table of 50 rows"
}

// ignored is the class that PyTorch's cross entropy leaves out unless it is told of another.
const ignored = -100

// bound has an input of m, which l reads as indices, know its range. from says who makes each of in.
func (m *Model) bound(k Kind, l *Layer, in []Tensor, from []string) {
	if k.Range == nil {
		return
	}
	at, r := k.Range(l, in)
	r.Only = true // integers are nothing but indices to built-in kinds
	of := func(t Tensor) bool { return t.Name == from[at] }
	if i := slices.IndexFunc(m.Inputs, of); i >= 0 {
		m.Inputs[i].Ranges = append(m.Inputs[i].Ranges, r)
	}
}
