package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// Mark tells data sets apart. Two splits with different Marks are different data; equal Marks make it very likely that
// the data is the same.
type Mark struct {
	Rows   int    `json:"rows"`   // number of samples
	SHA256 string `json:"sha256"` // of the values of some samples, spread over the split
}

// mostMarked is how many samples a Mark is computed from, so that a Mark of large data takes no time.
const mostMarked = 64

// MarkOf computes the Mark of a split. The seed of the split's order changes the Mark too.
func MarkOf(s Split) (Mark, error) {
	n, h := s.Len(), sha256.New()
	for i := range min(n, mostMarked) {
		at := i * n / min(n, mostMarked)
		b, err := s.Batch(at, 1, 0, 1)
		if err != nil {
			return Mark{}, err
		}
		for _, name := range slices.Sorted(maps.Keys(b)) {
			fmt.Fprintf(h, "%s%v", name, b[name].Shape)
			for _, values := range []any{b[name].Floats, b[name].Ints, b[name].Bools} {
				if err := binary.Write(h, binary.LittleEndian, values); err != nil {
					return Mark{}, fmt.Errorf("data: array %s: %w", name, err)
				}
			}
		}
	}
	return Mark{n, hex.EncodeToString(h.Sum(nil))}, nil
}
