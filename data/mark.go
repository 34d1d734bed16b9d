package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// Mark tells data sets apart. Two splits with different Marks are different data. Equal Marks mean equal samples, if
// all samples together have at most mostMarked bytes. A change of a few samples of larger data may be missed.
type Mark struct {
	Rows   int    `json:"rows"`   // number of samples
	SHA256 string `json:"sha256"` // of the values of samples that are spread evenly over the split
}

// mostMarked is about how many bytes a Mark is computed from. So a Mark of large data takes little time.
const mostMarked = 16 << 20

// MarkOf computes the Mark of a split. The seed of the split's order changes the Mark too.
func MarkOf(s Split) (Mark, error) {
	n, h := s.Len(), sha256.New()
	read := min(n, 1) // the first sample says how large a sample is
	for i := 0; i < read; i++ {
		b, err := s.Batch(i*n/read, 1, 0, 1)
		if err != nil {
			return Mark{}, err
		}
		bytes := 0
		for _, name := range slices.Sorted(maps.Keys(b)) {
			a := b[name]
			fmt.Fprintf(h, "%s%v", name, a.Shape)
			for _, values := range []any{a.Floats, a.Ints, a.Bools} {
				if err := binary.Write(h, binary.LittleEndian, values); err != nil {
					return Mark{}, fmt.Errorf("data: array %s: %w", name, err)
				}
			}
			bytes += 4*len(a.Floats) + 8*len(a.Ints) + len(a.Bools)
		}
		if i == 0 {
			read = min(n, max(2, mostMarked/max(1, bytes)))
		}
	}
	return Mark{n, hex.EncodeToString(h.Sum(nil))}, nil
}
