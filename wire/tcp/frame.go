package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/millrace-ml/millrace/wire"
)

const (
	prefixBytes = 32
	chunkBytes  = 256 << 10 // of a frame that travel in one piece
)

// The kinds of prefixes.
const (
	kindChunk = 1
	kindLeave = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is a piece of a frame.
type chunk struct {
	tag   uint64
	total int64 // bytes of the frame
	index uint32
}

func (c chunk) edge() uint32   { return uint32(c.tag>>wire.NumberBits) & (wire.MaxEdges - 1) }
func (c chunk) number() uint32 { return uint32(c.tag) }

// span is where in its frame a chunk lies.
func (c chunk) span() (from, to int64) {
	from = int64(c.index) * chunkBytes
	return from, min(from+chunkBytes, c.total)
}

// chunksOf is how many chunks a frame has; an empty one has one, too.
func chunksOf(total int64) int64 { return max(1, (total+chunkBytes-1)/chunkBytes) }

// appendPrefix writes what stands in front of a chunk.
func appendPrefix(to []byte, kind byte, c chunk) []byte {
	at := len(to)
	to = append(to, 'M', 'W', kind, 0)
	to = binary.LittleEndian.AppendUint32(to, c.index)
	to = binary.LittleEndian.AppendUint64(to, c.tag)
	to = binary.LittleEndian.AppendUint64(to, uint64(c.total))
	to = binary.LittleEndian.AppendUint32(to, 0)
	return binary.LittleEndian.AppendUint32(to, crc32.Checksum(to[at:], castagnoli))
}

// readPrefix reads what appendPrefix wrote. leaves says that the sender leaves in good order.
func readPrefix(p []byte) (c chunk, leaves bool, err error) {
	le := binary.LittleEndian
	end := prefixBytes - crc32.Size
	if p[0] != 'M' || p[1] != 'W' || p[3] != 0 || le.Uint32(p[end-4:]) != 0 ||
		le.Uint32(p[end:]) != crc32.Checksum(p[:end], castagnoli) {
		return c, false, fmt.Errorf("what follows begins with %x, and is no frame", p[:8])
	}
	c.index, c.tag = le.Uint32(p[4:]), le.Uint64(p[8:])
	total := le.Uint64(p[16:])
	switch {
	case p[2] == kindLeave && c == chunk{} && total == 0:
		return c, true, nil
	case p[2] != kindChunk:
		return c, false, fmt.Errorf("a frame of kind %d; there are %d and %d", p[2], kindChunk, kindLeave)
	case total > wire.MaxBytes:
		return c, false, fmt.Errorf("a frame of %d bytes; it has at most %d", total, int64(wire.MaxBytes))
	}
	if c.total = int64(total); int64(c.index) >= chunksOf(c.total) {
		return c, false, fmt.Errorf("chunk %d of a frame of %d bytes, which has %d", c.index, c.total, chunksOf(c.total))
	}
	return c, false, nil
}
