package data

import (
	"fmt"
	"math"
	"slices"
)

// Range describes which whole numbers an element of a model's input may be: Least to Most, both included, and Skip.
type Range struct {
	Least, Most int64
	Skip        *int64 // one more allowed number, which the model leaves out (a padding index); nil: none
	At          []int  // positions in a row that the Range applies to, ascending; nil: all
	Only        bool   // the numbers are used only as indices; false: the model also calculates with them
	For         string // what needs the Range, for errors: "a table of 6"
}

// String describes what is allowed and why, for errors: "0 to 5: a table of 6".
func (r Range) String() string {
	text := fmt.Sprintf("%d to %d", r.Least, r.Most)
	if r.Least == r.Most {
		text = fmt.Sprintf("only %d", r.Least)
	}
	if r.Skip != nil {
		text += fmt.Sprintf(", or %d, which is left out", *r.Skip)
	}
	return text + ": " + r.For
}

// allows reports whether an element may be v.
func (r *Range) allows(v int64) bool {
	return v >= r.Least && v <= r.Most || r.Skip != nil && v == *r.Skip
}

// covers reports whether the Range applies to the element at a position of a row.
func (r *Range) covers(at int) bool {
	if r.At == nil {
		return true
	}
	_, is := slices.BinarySearch(r.At, at)
	return is
}

// check refuses a row with an element out of range.
func (f Field) check(row []int64) error {
	for i := range f.Ranges {
		r := &f.Ranges[i]
		if r.At == nil {
			for at, v := range row {
				if !r.allows(v) {
					return f.outOfRange(at, v, r)
				}
			}
		}
		for _, at := range r.At {
			if !r.allows(row[at]) {
				return f.outOfRange(at, row[at], r)
			}
		}
	}
	return nil
}

// outOfRange returns the error for a value out of range, with its place in the row.
func (f Field) outOfRange(at int, v int64, r *Range) error {
	index := make([]int, len(f.Shape)) // index of the element in each dimension
	for d := len(f.Shape) - 1; d >= 0; d-- {
		index[d], at = at%f.Shape[d], at/f.Shape[d]
	}
	where := ""
	if len(index) > 0 {
		where = fmt.Sprintf(" at %v", index)
	}
	return fmt.Errorf("%d%s, and the model's %q takes %v", v, where, f.Name, r)
}

// limits returns the least and the greatest number that Synthetic may make for one element of a row. All ranges of the
// element allow every number between them. If the element has no range, or if the model also calculates with it, the
// two limits differ by at most 1. The model may then use the result as an index, perhaps into a table of only two
// entries.
func (f Field) limits(at int) (least, most int64) {
	least, most = 0, math.MaxInt64
	only := true
	for i := range f.Ranges {
		if r := &f.Ranges[i]; r.covers(at) {
			least, most, only = max(least, r.Least), min(most, r.Most), only && r.Only
		}
	}
	if most == math.MaxInt64 || !only {
		most = min(most, least+1)
	}
	return least, max(least, most)
}
