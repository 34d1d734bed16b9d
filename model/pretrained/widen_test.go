package pretrained

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/model"
)

// Every 16-bit float is converted to the number that its fields define.
func TestHalvesByTheirFields(t *testing.T) {
	for bits := range 1 << 16 {
		sign, exponent, fraction := 1-2*float64(bits>>15), bits>>10&31, float64(bits&1023)/1024
		want := sign * (1 + fraction) * math.Pow(2, float64(exponent-15))
		switch {
		case exponent == 0:
			want = sign * fraction * math.Pow(2, -14)
		case exponent == 31 && fraction == 0:
			want = math.Inf(int(sign))
		case exponent == 31:
			want = math.NaN()
		}
		got := float64(math.Float32frombits(half(uint16(bits))))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (sign < 0) && want == 0 {
			t.Fatalf("%#04x is %v, want %v", bits, got, want)
		}
	}
}

func TestWiderElements(t *testing.T) {
	for _, c := range []struct {
		dtype, as string
		data      []byte
		want      any
	}{
		{"BF16", "F32", []byte{0x80, 0x3f, 0x20, 0xc0}, []float32{1, -2.5}},
		{"F16", "F32", []byte{0x00, 0x3c, 0x00, 0xc1}, []float32{1, -2.5}},
		{"I32", "I64", []byte{255, 255, 255, 255, 1, 2, 0, 0}, []int64{-1, 513}},
		{"I16", "I64", []byte{254, 255}, []int64{-2}},
		{"I8", "I64", []byte{253, 3}, []int64{-3, 3}},
		{"U8", "I64", []byte{253}, []int64{253}},
		{"F32", "F32", []byte{0, 0, 128, 63}, []float32{1}},
		{"BOOL", "BOOL", []byte{0, 1, 7}, []byte{0, 1, 1}},
	} {
		v := model.Values{DType: c.dtype, Data: c.data}
		widen(&v)
		want, err := binary.Append(nil, binary.LittleEndian, c.want)
		if err != nil || v.DType != c.as || !slices.Equal(v.Data, want) {
			t.Errorf("%s %v is %s %v, want %v, %v", c.dtype, c.data, v.DType, v.Data, want, err)
		}
	}
}

func TestRowsForColumns(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {3, 5}, {33, 70}, {64, 32}, {0, 4}} {
		rows, columns := c[0], c[1]
		data := make([]byte, rows*columns*2)
		for i := range data {
			data[i] = byte(i * 7)
		}
		got := transposed(data, rows, columns)
		for r := range rows {
			for k := range columns {
				if a, b := data[(r*columns+k)*2:][:2], got[(k*rows+r)*2:][:2]; !slices.Equal(a, b) {
					t.Fatalf("%v: element %d, %d is %v, want %v", c, k, r, b, a)
				}
			}
		}
	}
}
