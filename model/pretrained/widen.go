package pretrained

import (
	"encoding/binary"
	"math"

	"github.com/millrace-ml/millrace/model"
)

// wider converts elements to a wider type, which represents each of them exactly.
type wider struct {
	as       string
	from, to int // bytes of an element
	put      func(to, element []byte)
}

var little = binary.LittleEndian

var widerOf = map[string]wider{
	"F16":  {"F32", 2, 4, func(to, e []byte) { little.PutUint32(to, half(little.Uint16(e))) }},
	"BF16": {"F32", 2, 4, func(to, e []byte) { copy(to[2:], e) }}, // the upper half of a float32
	"I32":  {"I64", 4, 8, func(to, e []byte) { little.PutUint64(to, uint64(int32(little.Uint32(e)))) }},
	"I16":  {"I64", 2, 8, func(to, e []byte) { little.PutUint64(to, uint64(int16(little.Uint16(e)))) }},
	"I8":   {"I64", 1, 8, func(to, e []byte) { little.PutUint64(to, uint64(int8(e[0]))) }},
	"BOOL": {"BOOL", 1, 1, func(to, e []byte) { to[0] = min(e[0], 1) }},
	"U8":   {"I64", 1, 8, func(to, e []byte) { little.PutUint64(to, uint64(e[0])) }},
}

// widen turns 16-bit floats into F32, whole numbers into I64, and bools into bytes of 0 or 1.
func widen(v *model.Values) {
	w, ok := widerOf[v.DType]
	if !ok {
		return
	}
	out := make([]byte, len(v.Data)/w.from*w.to)
	for i := range len(v.Data) / w.from {
		w.put(out[i*w.to:(i+1)*w.to], v.Data[i*w.from:(i+1)*w.from])
	}
	v.DType, v.Data = w.as, out
}

// half returns the bits of the float32 that equals a number in IEEE 754's binary16. binary16 has a sign, 5 bits of
// exponent and 10 of fraction.
func half(bits uint16) uint32 {
	sign, exponent, fraction := uint32(bits>>15)<<31, uint32(bits>>10&31), uint32(bits&1023)
	switch exponent {
	case 31: // infinity or NaN
		return sign | 255<<23 | fraction<<13
	case 0: // zero, or a subnormal number
		return sign | math.Float32bits(float32(fraction)/(1<<24))
	}
	return sign | (exponent+127-15)<<23 | fraction<<13
}

// transposed returns the transpose of a matrix with the given numbers of rows and columns. Elements may have any size.
func transposed(data []byte, rows, columns int) []byte {
	out := make([]byte, len(data))
	if len(data) == 0 {
		return out
	}
	size := len(data) / rows / columns
	const block = 32 // in elements, so that rows of both matrices stay in the cache
	for r0 := 0; r0 < rows; r0 += block {
		for c0 := 0; c0 < columns; c0 += block {
			for c := c0; c < min(c0+block, columns); c++ {
				for r := r0; r < min(r0+block, rows); r++ {
					copy(out[(c*rows+r)*size:(c*rows+r+1)*size], data[(r*columns+c)*size:])
				}
			}
		}
	}
	return out
}
