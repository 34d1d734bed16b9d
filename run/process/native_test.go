package process

import (
	"bytes"
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// No piece is longer than the limit, and each piece has one type. In order, the pieces contain all numbers of the
// vectors.
func TestPieces(t *testing.T) {
	vector := func(of wire.DType, elements int, with byte) wire.Buffer {
		return wire.Buffer{DType: of, Data: bytes.Repeat([]byte{with}, elements*int(of.Size()))}
	}
	vectors := []wire.Buffer{vector(wire.F32, 3, 1), vector(wire.F32, 0, 2), vector(wire.F32, 25, 3),
		vector(wire.F64, 9, 4), vector(wire.F32, 1, 5), vector(wire.F32, 16, 6)}
	for _, most := range []int{8, 24, 64, 1 << 20} {
		var want, got []byte
		for _, v := range vectors {
			want = append(want, v.Data...)
		}
		pieces := piecesOf(vectors, most)
		for i, p := range pieces {
			size := 0
			for _, part := range p.parts {
				got, size = append(got, part...), size+len(part)
			}
			if size == 0 || size > most || size%int(p.dtype.Size()) != 0 {
				t.Errorf("of at most %d bytes, piece %d has %d of %v", most, i, size, p.dtype)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("pieces of %d bytes are not what was divided", most)
		}
		if most == 1<<20 && len(pieces) != 3 {
			t.Errorf("%d pieces of three types in turn", len(pieces))
		}
	}
	if got := piecesOf(nil, 8); got != nil {
		t.Errorf("pieces of nothing: %v", got)
	}
}
