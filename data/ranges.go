package data

import (
	"fmt"
	"math"
	"slices"
)

// Range says which whole numbers elements of an input may be.
type Range struct {
	Least, Most int64
	Skip        *int64 // one more that may stand there; nil: none
	At          []int  // elements of a row that it holds for, ascending; nil: all
	Only        bool   // all that are in the range suit the model; else it calculates with them too
	For         string // why
}

func (r *Range) has(v int64) bool {
	return v >= r.Least && v <= r.Most || r.Skip != nil && v == *r.Skip
}

// String says what is right, and why.
func (r *Range) String() string {
	text := fmt.Sprintf("%d to %d", r.Least, r.Most)
	if r.Skip != nil {
		text += fmt.Sprintf(", or %d, which is left out", *r.Skip)
	}
	return text + ": " + r.For
}

// within refuses a row with an element that is out of its range.
func (f Field) within(row []int64) error {
	for i := range f.Ranges {
		r := &f.Ranges[i]
		if r.At == nil {
			for at, v := range row {
				if !r.has(v) {
					return f.outside(at, v, r)
				}
			}
		}
		for _, at := range r.At {
			if !r.has(row[at]) {
				return f.outside(at, row[at], r)
			}
		}
	}
	return nil
}

func (f Field) outside(at int, v int64, r *Range) error {
	place := make([]int, len(f.Shape))
	for d := len(f.Shape) - 1; d >= 0; d-- {
		place[d], at = at%f.Shape[d], at/f.Shape[d]
	}
	where := ""
	if len(place) > 0 {
		where = fmt.Sprintf(" at %v", place)
	}
	return fmt.Errorf("%d%s, and the model's %q takes %v", v, where, f.Name, r)
}

// limits are the least and the greatest number that are made up for an element of a row. Where nothing is known, or
// something else is calculated of it that may be an index too, they are 0 and 1, which any table of two entries holds.
func (f Field) limits(at int) (least, most int64) {
	least, most = 0, math.MaxInt64
	only := true
	for i := range f.Ranges {
		if r := &f.Ranges[i]; r.of(at) {
			least, most, only = max(least, r.Least), min(most, r.Most), only && r.Only
		}
	}
	if most == math.MaxInt64 || !only {
		most = min(most, least+1)
	}
	return least, max(least, most)
}

func (r *Range) of(at int) bool {
	if r.At == nil {
		return true
	}
	_, is := slices.BinarySearch(r.At, at)
	return is
}
