package live

import (
	"math"
	"slices"
	"strconv"
)

// series summarises the values of all steps in at most `most` parts. If one more part would exceed this number, each
// pair of neighbouring parts is merged into one.
type series struct {
	most    int
	columns int
	each    int // rows in a full part
	parts   []part
}

// part summarises several consecutive rows of a series.
type part struct {
	rows     int
	from, to int     // steps, counted from 1
	atS      float64 // training time after the last row, in seconds
	samples  int64
	of       []spread // one spread for each column
}

// spread summarises the values of one column in a part.
type spread struct {
	rows           int // rows that have a value
	mean, low, top float64
}

func newSeries(most, columns int) *series { return &series{most: most, columns: columns, each: 1} }

// add adds a row. It ignores values that are not finite.
func (s *series) add(step int, atS float64, samples int64, values []float64) {
	if n := len(s.parts); n > 0 && s.parts[n-1].rows < s.each {
		s.parts[n-1].join(rowOf(step, atS, samples, values))
		return
	}
	if len(s.parts) >= s.most {
		for i := range len(s.parts) / 2 {
			two := s.parts[2*i]
			two.join(s.parts[2*i+1])
			s.parts[i] = two
		}
		half := len(s.parts) / 2
		clear(s.parts[half:])
		s.parts, s.each = s.parts[:half], 2*s.each
	}
	s.parts = append(s.parts, rowOf(step, atS, samples, values))
}

func rowOf(step int, atS float64, samples int64, values []float64) part {
	p := part{rows: 1, from: step, to: step, atS: atS, samples: samples, of: make([]spread, len(values))}
	for i, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			p.of[i] = spread{1, v, v, v}
		}
	}
	return p
}

// join adds the rows of the following part to a part.
func (p *part) join(next part) {
	p.rows, p.to, p.atS, p.samples = p.rows+next.rows, next.to, next.atS, next.samples
	for i, b := range next.of {
		a := &p.of[i]
		switch {
		case b.rows == 0:
		case a.rows == 0:
			*a = b
		default:
			n := a.rows + b.rows
			a.mean += (b.mean - a.mean) * float64(b.rows) / float64(n)
			a.low, a.top, a.rows = min(a.low, b.low), max(a.top, b.top), n
		}
	}
}

// ends returns the sizes of the parts. `each` is the number of rows of a full part, `whole` is the number of full
// parts, and `rows` is the number of rows of an incomplete last part. Full parts only change when neighbours are
// merged.
func (s *series) ends() (each, whole, rows int) {
	whole = len(s.parts)
	if whole > 0 && s.parts[whole-1].rows < s.each {
		whole--
		rows = s.parts[whole].rows
	}
	return s.each, whole, rows
}

// appendJSON writes the parts from index `from` on, one list for each column. On a page, the written parts replace the
// parts from that index on.
func (s *series) appendJSON(b []byte, from int) []byte {
	parts := s.parts[from:]
	b = append(b, `{"each":`...)
	b = strconv.AppendInt(b, int64(s.each), 10)
	b = append(b, `,"from":`...)
	b = strconv.AppendInt(b, int64(from), 10)
	column := func(name string, value func(*part) float64, digits int) {
		b = append(b, ',', '"')
		b = append(b, name...)
		b = append(b, '"', ':')
		b = appendColumn(b, parts, value, digits)
	}
	column("step", func(p *part) float64 { return float64(p.to) }, 15)
	column("at", func(p *part) float64 { return p.atS }, 8)
	column("samples", func(p *part) float64 { return float64(p.samples) }, 15)
	for _, kind := range []struct {
		name string
		of   func(*spread) float64
	}{{"mean", func(x *spread) float64 { return x.mean }}, {"low", func(x *spread) float64 { return x.low }},
		{"top", func(x *spread) float64 { return x.top }}} {
		if kind.name != "mean" && s.each == 1 {
			continue // mean, low and top of a single row are equal
		}
		b = append(b, ',', '"')
		b = append(b, kind.name...)
		b = append(b, `":[`...)
		for c := range s.columns {
			if c > 0 {
				b = append(b, ',')
			}
			if !slices.ContainsFunc(s.parts, func(p part) bool { return p.of[c].rows > 0 }) {
				b = append(b, "null"...) // no part of the series has a value in this column
				continue
			}
			b = appendColumn(b, parts, func(p *part) float64 {
				if p.of[c].rows == 0 {
					return math.NaN()
				}
				return kind.of(&p.of[c])
			}, 5)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendColumn writes a value of each part; null for NaN.
func appendColumn(b []byte, parts []part, value func(*part) float64, digits int) []byte {
	b = append(b, '[')
	for i := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		if v := value(&parts[i]); math.IsNaN(v) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, v, 'g', digits, 64)
		}
	}
	return append(b, ']')
}
