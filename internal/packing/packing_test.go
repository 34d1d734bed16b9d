package packing_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/packing"
)

// sixteen lists all finite non-negative numbers of a 16-bit format in ascending order, by IEEE 754's formula.
// exponentBits is the width of the format's exponent. A number's index is its bit pattern.
func sixteen(exponentBits int) []float64 {
	fraction, bias := 15-exponentBits, 1<<(exponentBits-1)-1
	var all []float64
	for bits := range (1<<exponentBits - 1) << fraction {
		e, m := bits>>fraction, float64(bits&(1<<fraction-1))/float64(int(1)<<fraction)
		if e == 0 {
			all = append(all, m*math.Pow(2, float64(1-bias)))
		} else {
			all = append(all, (1+m)*math.Pow(2, float64(e-bias)))
		}
	}
	return all
}

// byTable returns the pattern of the number in the table that is nearest to x. If two numbers are equally near, it
// returns the even pattern. `beyond` is true if x rounds to the number that would follow the last number of the table.
func byTable(table []float64, x float64) (pattern int, beyond bool) {
	a := math.Abs(x)
	at, exact := slices.BinarySearch(table, a)
	last := len(table) - 1
	switch {
	case exact:
	case at > last:
		at = last
		half := (table[last] - table[last-1]) / 2
		beyond = a >= table[last]+half // a tie goes to the number that would follow, which is even
	default:
		below, above := a-table[at-1], table[at]-a
		if below < above || below == above && (at-1)%2 == 0 {
			at--
		}
	}
	if math.Signbit(x) {
		at |= 1 << 15
	}
	return at, beyond
}

// samples returns numbers of all sizes, including midpoints between two numbers of a format.
func samples(table []float64) []float64 {
	r := rand.New(rand.NewPCG(1, 2))
	xs := []float64{0, math.Copysign(0, -1), 1, -1, table[1] / 2, table[1] * 0.75, table[1] / 4, 65519.9, 65520, 1e30,
		-1e39, table[len(table)-1], math.SmallestNonzeroFloat64}
	for range 3000 {
		i := r.IntN(len(table) - 1)
		half := table[i]/2 + table[i+1]/2
		xs = append(xs, half, math.Nextafter(half, 0), -math.Nextafter(half, 1e300), table[i], r.NormFloat64(),
			math.Ldexp(r.NormFloat64(), r.IntN(300)-170))
	}
	return xs
}

func TestSixteenBitsAreTheNearest(t *testing.T) {
	for _, c := range []struct {
		format   packing.Format
		exponent int
	}{{packing.F16, 5}, {packing.BF16, 8}} {
		table := sixteen(c.exponent)
		for _, x := range samples(table) {
			want, beyond := byTable(table, x)
			bytes, seen, back := make([]byte, 2), packing.Seen{}, make([]float64, 1)
			c.format.Pack(bytes, nil, []float64{x}, &seen)
			if got := int(binary.LittleEndian.Uint16(bytes)); got != want || (seen.Beyond == 1) != beyond {
				t.Fatalf("%s: %v becomes %#x, beyond %v; the nearest is %#x, %v", c.format, x, got, seen.Beyond, want, beyond)
			}
			c.format.Unpack(back, bytes, nil)
			number := math.Copysign(table[want&0x7fff], x)
			if back[0] != number || math.Signbit(back[0]) != math.Signbit(x) {
				t.Fatalf("%s: %#x stands for %v, not %v", c.format, want, number, back[0])
			}
			if off := math.Abs(x - number); !beyond && seen.Absolute != off {
				t.Fatalf("%s: %v is off by %v, noted %v", c.format, x, off, seen.Absolute)
			}
			if !beyond && math.Abs(x) >= table[1<<(15-c.exponent)] && seen.Relative > c.format.Relative() {
				t.Fatalf("%s: %v is off by a part of %v; the bound is %v", c.format, x, seen.Relative, c.format.Relative())
			}
		}
	}
}

// TestEightBitsByHand uses rows whose largest magnitudes, 127 and 254, give scales of 1 and 2. A row of zeros and an
// empty row have the scale 0.
func TestEightBitsByHand(t *testing.T) {
	for _, c := range []struct {
		row   []float64
		scale float32
		bytes []int8
	}{
		{[]float64{127, 0.5, 1.5, -2.5, -126.6}, 1, []int8{127, 0, 2, -2, -127}},
		{[]float64{-254, 3, 1, 5.1}, 2, []int8{-127, 2, 0, 3}},
		{[]float64{0, 0}, 0, []int8{0, 0}},
		{nil, 0, nil},
	} {
		bytes, of, seen := make([]byte, len(c.row)), make([]byte, packing.ScaleBytes), packing.Seen{}
		packing.I8.Pack(bytes, of, c.row, &seen)
		if scale := math.Float32frombits(binary.LittleEndian.Uint32(of)); scale != c.scale {
			t.Errorf("%v: scale %v, wanted %v", c.row, scale, c.scale)
		}
		back, off := make([]float64, len(c.row)), 0.0
		packing.I8.Unpack(back, bytes, of)
		for i, q := range c.bytes {
			if int8(bytes[i]) != q || back[i] != float64(q)*float64(c.scale) {
				t.Errorf("%v: element %d is %d, %v; wanted %d", c.row, i, int8(bytes[i]), back[i], q)
			}
			off = max(off, math.Abs(c.row[i]-back[i]))
		}
		if seen.Absolute != off || seen.Relative > packing.I8.Relative() {
			t.Errorf("%v: errors %+v; the largest is %v", c.row, seen, off)
		}
	}
}

// TestNotFinite: NaN stays NaN, and infinities stay if the format has them. In i8 the whole row becomes NaN.
func TestNotFinite(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, f := range []packing.Format{packing.F16, packing.BF16, packing.I8} {
		row, seen := []float64{1, inf, -inf, nan}, packing.Seen{}
		bytes, of, back := make([]byte, 4*f.ElementBytes()), make([]byte, packing.ScaleBytes), make([]float64, 4)
		f.Pack(bytes, of, row, &seen)
		f.Unpack(back, bytes, of)
		if f == packing.I8 {
			for _, x := range back {
				if x == x {
					t.Errorf("i8: a row with an infinity is %v; it must be NaN", back)
				}
			}
		} else if back[0] != 1 || back[1] != inf || back[2] != -inf || back[3] == back[3] {
			t.Errorf("%s: %v became %v", f, row, back)
		}
		if seen != (packing.Seen{}) {
			t.Errorf("%s: errors %+v of numbers that are not finite", f, seen)
		}
	}
}

func TestNames(t *testing.T) {
	for _, name := range packing.Names {
		if f, err := packing.Named(name); err != nil || f.String() != name || f.Packs() != (name != "f32") {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	if _, err := packing.Named("fp16"); err == nil {
		t.Error("fp16 is a format")
	}
	for f, size := range map[packing.Format]int64{packing.Whole: 40, packing.F16: 20, packing.BF16: 20, packing.I8: 14} {
		if got := f.RowBytes(10); got != size {
			t.Errorf("%s: 10 elements have %d bytes, wanted %d", f, got, size)
		}
	}
}
