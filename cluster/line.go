package cluster

// Line is how long bytes take that go the same way: a latency, and seconds for each.
type Line struct{ FixedS, PerByteS float64 }

// Of is what so many bytes take.
func (a Line) Of(bytes float64) float64 { return a.FixedS + bytes*a.PerByteS }

// Most is the larger latency and the larger seconds a byte of two.
func (a Line) Most(b Line) Line {
	return Line{FixedS: max(a.FixedS, b.FixedS), PerByteS: max(a.PerByteS, b.PerByteS)}
}

// Over is the link that several rails make together, each of which carries a part of the bytes.
func (a Line) Over(rails int) Line {
	return Line{FixedS: a.FixedS, PerByteS: a.PerByteS / float64(rails)}
}

// Ring is 2 (n-1) messages of an n-th of the bytes.
func (a Line) Ring(n int) Line {
	messages := 2 * float64(n-1)
	return Line{FixedS: messages * a.FixedS, PerByteS: messages / float64(n) * a.PerByteS}
}

// Then is one after the other.
func (a Line) Then(b Line) Line {
	return Line{FixedS: a.FixedS + b.FixedS, PerByteS: a.PerByteS + b.PerByteS}
}
