package plan

// affine is seconds as latency and seconds a byte.
type affine struct{ fixedS, perByteS float64 }

func (a affine) of(bytes float64) float64 { return a.fixedS + bytes*a.perByteS }

// most is the larger latency and the larger seconds a byte of two.
func (a affine) most(b affine) affine {
	return affine{fixedS: max(a.fixedS, b.fixedS), perByteS: max(a.perByteS, b.perByteS)}
}

// over is a link of which several share the bytes.
func (a affine) over(rails int) affine {
	return affine{fixedS: a.fixedS, perByteS: a.perByteS / float64(rails)}
}

// ring is 2 (n-1) messages of an n-th of the bytes.
func (a affine) ring(n int) affine {
	messages := 2 * float64(n-1)
	return affine{fixedS: messages * a.fixedS, perByteS: messages / float64(n) * a.perByteS}
}

// and is one after the other.
func (a affine) and(b affine) affine {
	return affine{fixedS: a.fixedS + b.fixedS, perByteS: a.perByteS + b.perByteS}
}
