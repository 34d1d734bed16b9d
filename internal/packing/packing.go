// Package packing writes the numbers of tensors in 16 or 8 bits, for messages between stages.
//
// Pack turns a row of numbers into bytes and records the rounding errors; Unpack turns the bytes into numbers again.
// Unknown format names are refused.
//
// Every row, the elements of one sample, is packed separately. So a sample's numbers do not depend on how a micro-batch
// is divided, and large numbers in one sample do not reduce the precision of others. Bytes are little-endian.
//
//   - f16 is IEEE 754 binary16, with 2 bytes for an element. bf16 is the upper half of a binary32. Each number is
//     rounded to the nearest one of the format. If two are equally near, it becomes the one whose last bit is 0.
//     Subnormal numbers are kept.
//   - i8 is a signed byte for each element, and a scale for each row: its largest magnitude divided by 127, in 32
//     bits, stored beside the row. The byte is the element times the scale's inverse, computed in 64 bits. It is
//     rounded to the nearest whole number, or, if two are equally near, to the even one. It is limited to -127 to 127.
//     The unpacked number is the byte times the scale. A row whose scale is 0 is unpacked as zeros.
//
// NaN stays NaN. Infinities stay in f16 and bf16; a row of i8 with an infinity or a NaN becomes all NaN. A number that
// is too large for a format becomes the format's largest, with its sign, and is counted (Seen.Beyond). An infinity
// in its place would end the training.
//
// Engines write the same bytes: engine/ref calls this package, and the shim has it in C++ (pack.cpp).
package packing

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Format is a way to write numbers; "" leaves them unchanged.
type Format string

// These are the formats.
const (
	Whole Format = ""
	F16   Format = "f16"
	BF16  Format = "bf16"
	I8    Format = "i8"
)

// Names lists the names that Named accepts.
var Names = []string{"f32", string(F16), string(BF16), string(I8)}

// Named returns the format of a name; for "f32" and "" it is Whole.
func Named(name string) (Format, error) {
	switch f := Format(name); f {
	case "f32", Whole:
		return Whole, nil
	case F16, BF16, I8:
		return f, nil
	}
	return Whole, fmt.Errorf("no format %q; %s", name, registry.Instead(name, Names))
}

// String returns the format's name.
func (f Format) String() string {
	if f == Whole {
		return "f32"
	}
	return string(f)
}

// Packs reports whether the format changes how numbers are written.
func (f Format) Packs() bool { return f != Whole }

// Bound returns, in words, how much an unpacked number may differ from the original.
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

// Relative returns Bound as a fraction of the row's largest number. The bound holds for rows of numbers that are normal
// in the format.
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

// ScaleBytes is the size of a row's scale, in bytes.
const ScaleBytes = 4

// RowBytes returns the size of a packed row in bytes; an unchanged element counts 4.
func (f Format) RowBytes(elements int64) int64 {
	n := elements * f.ElementBytes()
	if f.Scaled() {
		n += ScaleBytes
	}
	return n
}

// ElementBytes returns the size of an element in bytes, without a row's scale.
func (f Format) ElementBytes() int64 {
	switch f {
	case F16, BF16:
		return 2
	case I8:
		return 1
	}
	return 4
}

// Scaled reports whether rows have a scale, of ScaleBytes.
func (f Format) Scaled() bool { return f == I8 }

// Seen holds the largest errors in packed rows. Numbers that are infinite, NaN or too large for the format do not count
// as errors.
type Seen struct {
	Absolute float64 // largest error of a number
	Relative float64 // largest error of a number, divided by the largest magnitude of its row
	Beyond   float64 // how many numbers were too large for the format
}

// Numbers is the count of numbers in a Seen.
const Numbers = 3

// Pack writes a row of numbers to `to`, in ElementBytes bytes each, and records the rounding errors in `seen`. If the
// format has a scale, Pack writes the row's scale to `scaleTo`, in ScaleBytes bytes.
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

// bitsOf returns a number's bits. Every NaN has the same bits.
func bitsOf(x float32) uint32 {
	if x != x {
		return 0x7fc00000
	}
	return math.Float32bits(x)
}

// nearest returns the 16 bits for a number x, and the number that they encode. `beyond` is true if x is too large for
// the format.
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
	wide := math.Float32bits(float32(a)) // a as a binary32, without rounding
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

// Unpack writes the numbers of Pack's bytes to `row`.
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

// number returns the number that 16 bits encode.
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
