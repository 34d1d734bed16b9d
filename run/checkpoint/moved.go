package checkpoint

import (
	"os"
	"slices"
	"sync/atomic"
)

// moved counts what Moved says.
var moved atomic.Int64

// Moved is how many bytes of checkpoint files this process has read and written so far. Files here and of other
// processes count, whole or not. As long as it grows, whoever reads or writes one is slow and does not hang.
func Moved() int64 { return moved.Load() }

// counted is a file whose bytes are counted.
type counted struct{ *os.File }

// ReadAt reads and counts.
func (f counted) ReadAt(into []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(into, at)
	moved.Add(int64(n))
	return n, err
}

// Write writes and counts, piece by piece.
func (f counted) Write(data []byte) (written int, err error) {
	for piece := range slices.Chunk(data, 1<<20) {
		n, err := f.File.Write(piece)
		moved.Add(int64(n))
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}
