// Package packing says how numbers are written in 16 or 8 bits: the tensors that stages send each other.
//
// In: a Format, and rows of numbers. Out: the bytes that stand for a row, the numbers that bytes stand for, and by how
// much these differ. Refused: names that are no format.
//
// Every row, the elements of one sample, is packed by itself, so that a sample's numbers do not depend on who has which
// samples of a micro-batch, and one sample's large numbers cost no other its precision. Bytes are little-endian.
//
//   - f16 is IEEE 754 binary16, 2 bytes an element, and bf16 the upper half of a binary32. A number becomes the
//     nearest one there is, of two the one whose last bit is 0; numbers below the normal ones are kept as such.
//   - i8 is a scale in 32 bits, beside the row, its largest magnitude over 127 rounded to the nearest, and a signed
//     byte for each element: its number times the scale's inverse, both in 64 bits, rounded to the nearest whole
//     number, of two the even one, and -127 to 127. It stands for that byte times the scale. A row whose scale is 0
//     is zeros.
//
// What is not a number stays so. Infinities stay in f16 and bf16; a row of i8 with an infinity or a NaN is all NaN.
// A number that a format is too small for becomes its largest, with its sign, and is counted (Seen.Beyond): an infinity
// in its place would end the training.
//
// Engines write the same bytes: engine/ref calls this package, the shim has it in C++ (pack.cpp).
package packing

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Format is how numbers are written; "" is as they are.
type Format string

// The formats.
const (
	Whole Format = ""
	F16   Format = "f16"
	BF16  Format = "bf16"
	I8    Format = "i8"
)

// Names lists what Named takes.
var Names = []string{"f32", string(F16), string(BF16), string(I8)}

// Named is the format of a name; f32, and no name, is Whole.
func Named(name string) (Format, error) {
	switch f := Format(name); f {
	case "f32", Whole:
		return Whole, nil
	case F16, BF16, I8:
		return f, nil
	}
	return Whole, fmt.Errorf("no format %q; %s", name, registry.Instead(name, Names))
}

// String is a format's name.
func (f Format) String() string {
	if f == Whole {
		return "f32"
	}
	return string(f)
}

// Packs says whether numbers are written otherwise than they are.
func (f Format) Packs() bool { return f != Whole }

// Bound is how far a number may be from what stands for it, in words.
func (f Format) Bound() string {
	switch f {
	case F16:
		return "2^-11 of a number, or 2^-25 where that is more"
	case BF16:
		return "2^-8 of a number"
	case I8:
		return "1/254 of the largest number of its sample"
	}
	return "0"
}

// Relative is that bound as a part of the row's largest number, for rows of numbers that are normal in the format.
func (f Format) Relative() float64 {
	switch f {
	case F16:
		return 1.0 / (1 << 11)
	case BF16:
		return 1.0 / (1 << 8)
	case I8:
		return 1.0 / 254
	}
	return 0
}

// ScaleBytes is the bytes of a row's scale.
const ScaleBytes = 4

// RowBytes is the bytes of a row of so many elements; of numbers as they are, with 4 bytes each.
func (f Format) RowBytes(elements int64) int64 {
	n := elements * f.ElementBytes()
	if f.Scaled() {
		n += ScaleBytes
	}
	return n
}

// ElementBytes is the bytes of an element, without a row's scale.
func (f Format) ElementBytes() int64 {
	switch f {
	case F16, BF16:
		return 2
	case I8:
		return 1
	}
	return 4
}

// Scaled says whether rows have a scale, of ScaleBytes.
func (f Format) Scaled() bool { return f == I8 }

// Seen is the largest errors among rows that were packed. Numbers that are not finite, and those beyond the format,
// count in neither.
type Seen struct {
	Absolute float64 // of a number
	Relative float64 // of a number, over the largest magnitude of its row
	Beyond   float64 // numbers that the format is too small for
}

// Numbers is how many numbers a Seen is.
const Numbers = 3

// Pack writes a row of numbers to to, ElementBytes for each, and notes its errors in seen. Where the format has a
// scale, that of the row goes to scaleTo, in ScaleBytes bytes.
func (f Format) Pack(to, scaleTo []byte, row []float64, seen *Seen) {
	largest, finite := 0.0, true
	for _, x := range row {
		if a := math.Abs(x); a <= math.MaxFloat64 {
			largest = max(largest, a)
		} else {
			finite = false
		}
	}
	worst := 0.0
	note := func(x, stands float64) { worst = max(worst, math.Abs(x-stands)) }
	if f == I8 {
		scale := float32(largest / 127)
		if !finite {
			scale = float32(math.NaN())
		}
		binary.LittleEndian.PutUint32(scaleTo, bitsOf(scale))
		inverse := 1 / float64(scale)
		for i, x := range row {
			q := 0.0
			if scale > 0 {
				q = max(-127, min(127, math.RoundToEven(x*inverse)))
			}
			to[i] = byte(int8(q))
			if finite {
				note(x, q*float64(scale))
			}
		}
	} else {
		for i, x := range row {
			bits, stands, beyond := f.nearest(x)
			binary.LittleEndian.PutUint16(to[2*i:], bits)
			if beyond {
				seen.Beyond++
			} else if math.Abs(x) <= math.MaxFloat64 {
				note(x, stands)
			}
		}
	}
	if worst > 0 {
		seen.Absolute, seen.Relative = max(seen.Absolute, worst), max(seen.Relative, worst/largest)
	}
}

// bitsOf is a number's bits, the same for whatever is not a number.
func bitsOf(x float32) uint32 {
	if x != x {
		return 0x7fc00000
	}
	return math.Float32bits(x)
}

// nearest is the 16 bits that stand for a number, the number that they are, and whether the format is too small for it.
func (f Format) nearest(x float64) (bits uint16, stands float64, beyond bool) {
	fraction, least, largest := 10, -14, 65504.0
	if f == BF16 {
		fraction, least, largest = 7, -126, math.Ldexp(255, 120)
	}
	switch {
	case x != x && f == BF16:
		return 0x7fc0, x, false
	case x != x:
		return 0x7e00, x, false
	}
	a := math.Abs(x)
	if !math.IsInf(x, 0) {
		_, exponent := math.Frexp(a) // a is at least half of 2^exponent
		last := max(exponent-1, least) - fraction
		a = math.Ldexp(math.RoundToEven(math.Ldexp(a, -last)), last)
		if beyond = a > largest; beyond {
			a = largest
		}
	}
	wide := math.Float32bits(float32(a)) // exactly a
	switch {
	case f == BF16:
		bits = uint16(wide >> 16)
	case a < 0x1p-14:
		bits = uint16(math.Ldexp(a, 24))
	case math.IsInf(a, 0):
		bits = 0x7c00
	default:
		bits = uint16(wide>>13 - 112<<10)
	}
	if math.Signbit(x) {
		bits |= 1 << 15
	}
	return bits, math.Copysign(a, x), beyond
}

// Unpack writes to row the numbers that Pack's bytes stand for.
func (f Format) Unpack(row []float64, from, scaleFrom []byte) {
	if f == I8 {
		scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(scaleFrom)))
		for i, b := range from {
			row[i] = float64(int8(b)) * scale
		}
		return
	}
	for i := range row {
		row[i] = f.number(binary.LittleEndian.Uint16(from[2*i:]))
	}
}

// number is what 16 bits stand for.
func (f Format) number(bits uint16) float64 {
	if f == BF16 {
		return float64(math.Float32frombits(uint32(bits) << 16))
	}
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	x := math.Ldexp(fraction, -24)
	switch {
	case exponent == 31 && fraction > 0:
		return math.NaN()
	case exponent == 31:
		x = math.Inf(1)
	case exponent > 0:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits>>15 != 0 {
		x = -x
	}
	return x
}
