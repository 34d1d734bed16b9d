package checkpoint

import (
	"os"
	"slices"
	"sync/atomic"
)

// moved is the number that Moved returns.
var moved atomic.Int64

// Moved returns how many bytes of checkpoint files this process has read and written until now. It also counts bytes of
// files that other processes send, and bytes of files that remain incomplete. As long as the number grows, reading or
// writing does not hang, even if it is slow.
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
