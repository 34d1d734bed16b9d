package torch_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/packing"
)

// packed32 returns rows of float32 of many magnitudes, including ties, subnormal numbers, an infinity and a NaN.
func packed32() (shape []int64, xs []float32) {
	r := rand.New(rand.NewPCG(3, 4))
	shape = []int64{40, 25, 20}
	for i := range int(shape[0]) {
		for range 500 {
			x := float32(math.Ldexp(r.NormFloat64(), r.IntN(1+8*i)-7*i))
			switch r.IntN(8) {
			case 0:
				x = math.Float32frombits(math.Float32bits(x) &^ 0xfff) // often a tie in f16
			case 1:
				x = math.Float32frombits(math.Float32bits(x)&^0xffff | 0x8000) // a tie in bf16
			case 2:
				x = float32(r.IntN(300)) / 2 // often a tie in i8
			}
			xs = append(xs, x)
		}
	}
	xs[3], xs[700], xs[1501] = float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32
	for i := range 500 {
		xs[2000+i] = 0
		xs[2500+i] = math.Float32frombits(uint32(i)) // subnormal
	}
	return shape, xs
}

func packedBy(t *testing.T, d engine.Device, x engine.Tensor, f packing.Format, seen engine.Tensor) (packed,
	scales engine.Tensor) {
	t.Helper()
	packed, scales, err := engine.Pack(d, x, f, seen)
	if err != nil {
		t.Fatal(err)
	}
	return packed, scales
}

// The library packs to the bytes that package packing defines, records its rounding errors, and unpacks to the
// defined numbers.
func TestPackedBytesAreTheDefinitions(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	shape, xs := packed32()
	x := must(d.FromBytes(engine.Float32, shape, engine.Bytes(xs)))
	for _, f := range []packing.Format{packing.F16, packing.BF16, packing.I8} {
		seen := must(d.Full(engine.Float64, []int64{packing.Numbers}, 0))
		got, scales := packedBy(t, d, x, f, seen)
		each, scale := f.ElementBytes(), f.RowBytes(0)
		size := 500 * each
		if want := append(slices.Clone(shape), each); !slices.Equal(got.Shape(), want) || got.DType() != engine.Uint8 {
			t.Fatalf("%s: %v%v, wanted bytes of shape %v", f, got.DType(), got.Shape(), want)
		}
		wanted, ofRows := make([]byte, shape[0]*size), make([]byte, shape[0]*scale)
		back, errors := make([]float64, len(xs)), packing.Seen{}
		for r := range shape[0] {
			row := make([]float64, 500)
			for i := range row {
				row[i] = float64(xs[r*500+int64(i)])
			}
			one, of := wanted[r*size:(r+1)*size], ofRows[r*scale:(r+1)*scale]
			f.Pack(one, of, row, &errors)
			f.Unpack(back[r*500:(r+1)*500], one, of)
		}
		if own := must(viewOf(d, got)); !bytes.Equal(own, wanted) {
			at := 0
			for own[at] == wanted[at] {
				at++
			}
			t.Fatalf("%s: byte %d of row %d is %#x, by the definition %#x", f, int64(at)%size, int64(at)/size, own[at],
				wanted[at])
		}
		if own := must(viewOf(d, scales)); !bytes.Equal(own, ofRows) {
			t.Fatalf("%s: scales %v, by the definition %v", f, own, ofRows)
		}
		noted := engine.Numbers[float64](must(viewOf(d, seen)))
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*b }
		if !near(noted[0], errors.Absolute) || !near(noted[1], errors.Relative) || noted[2] != errors.Beyond {
			t.Errorf("%s: errors %v, by the definition %+v", f, noted, errors)
		}
		unpacked := engine.Numbers[float32](must(viewOf(d, must(engine.Unpack(d, got, scales, f, engine.Float32)))))
		for i, v := range unpacked {
			if want := float32(back[i]); v != want && (v == v || want == want) || math.Signbit(float64(v)) != math.Signbit(
				back[i]) && v == v && f != packing.I8 {
				t.Fatalf("%s: element %d is %v, by the definition %v", f, i, v, want)
			}
		}
	}
}

// The rounding error of every number between 2^-120 and 65504 is within the format's bound.
func TestPackedNumbersKeepTheBound(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	shape, xs := packed32()
	for i, x := range xs {
		if !(math.Abs(float64(x)) < 65504) {
			xs[i] = 1
		}
	}
	x := must(d.FromBytes(engine.Float32, shape, engine.Bytes(xs)))
	for _, f := range []packing.Format{packing.F16, packing.BF16, packing.I8} {
		seen := must(d.Full(engine.Float64, []int64{packing.Numbers}, 0))
		packed, scales := packedBy(t, d, x, f, seen)
		got := must(engine.Unpack(d, packed, scales, f, engine.Float32))
		numbers := engine.Numbers[float32](must(viewOf(d, got)))
		for i, v := range numbers {
			bound := f.Relative() * math.Abs(float64(xs[i]))
			switch f {
			case packing.F16:
				bound = max(bound, 0x1p-25)
			case packing.BF16:
				bound = max(bound, 0x1p-134)
			case packing.I8:
				bound = 0x1p-149 // a lower limit, for scales that are subnormal
				for _, y := range xs[i/500*500 : i/500*500+500] {
					bound = max(bound, math.Abs(float64(y))/254*(1+1e-6))
				}
			}
			if off := math.Abs(float64(v) - float64(xs[i])); off > bound && math.Abs(float64(xs[i])) > 0x1p-120 {
				t.Fatalf("%s: %v became %v, off by %v; the bound is %v", f, xs[i], v, off, bound)
			}
		}
	}
}
