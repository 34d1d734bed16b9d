package cluster

// Line is a transfer's time as a linear function of its bytes: a fixed time and a time per byte, in seconds.
type Line struct{ FixedS, PerByteS float64 }

// Of returns the time for this many bytes, in seconds.
func (a Line) Of(bytes float64) float64 { return a.FixedS + bytes*a.PerByteS }

// Most returns a line that is never below `a` or `b`. Its fixed part is the larger one of the two, and so are its
// seconds per byte.
func (a Line) Most(b Line) Line {
	return Line{FixedS: max(a.FixedS, b.FixedS), PerByteS: max(a.PerByteS, b.PerByteS)}
}

// Over returns the line of several rails in parallel, each of which carries an equal part of the bytes.
func (a Line) Over(rails int) Line {
	return Line{FixedS: a.FixedS, PerByteS: a.PerByteS / float64(rails)}
}

// Ring returns the line of a ring all-reduce: 2 (n-1) messages of 1/n of the bytes.
func (a Line) Ring(n int) Line {
	messages := 2 * float64(n-1)
	return Line{FixedS: messages * a.FixedS, PerByteS: messages / float64(n) * a.PerByteS}
}

// Then returns the line of two transfers one after the other.
func (a Line) Then(b Line) Line {
	return Line{FixedS: a.FixedS + b.FixedS, PerByteS: a.PerByteS + b.PerByteS}
}
