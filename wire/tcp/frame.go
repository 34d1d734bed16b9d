package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

const (
	prefixBytes = 32
	chunkBytes  = 256 << 10 // most bytes of a frame that are sent in one piece
)

// The kinds of prefixes.
const (
	kindChunk = iota + 1 // a chunk of a frame, which follows
	kindLeave            // the sender of this prefix has closed its carrier
	kindOffer            // an offer to lend memory
	kindReads            // answer to an offer: lent memory can be read
	kindLent             // a whole frame, which lies in the sender's memory
	kindTaken            // answer to a lent frame: the frame has been read
	kindBack             // answer to a lent frame: it cannot be read, and must be sent as bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is a piece of a frame.
type chunk struct {
	tag   uint64
	total int64 // bytes of the frame
	index uint32
	at    uint64 // address of the whole frame, if it is lent
}

func (c chunk) edge() uint32   { return uint32(c.tag>>wire.NumberBits) & (wire.MaxEdges - 1) }
func (c chunk) number() uint32 { return uint32(c.tag) }

// span returns where in its frame a chunk lies, in bytes.
func (c chunk) span() (from, to int64) {
	from = int64(c.index) * chunkBytes
	return from, min(from+chunkBytes, c.total)
}

// chunksOf returns how many chunks a frame has; an empty frame has one.
func chunksOf(total int64) int64 { return max(1, (total+chunkBytes-1)/chunkBytes) }

// loan returns the loan that an offer describes.
func (c chunk) loan() memory.Loan {
	return memory.Loan{Host: uint64(c.total), Process: c.index, At: c.tag}
}

// offer puts a loan into the fields of a prefix.
func offer(l memory.Loan) chunk { return chunk{total: int64(l.Host), index: l.Process, tag: l.At} }

// appendPrefix appends a prefix of the given kind, with the fields of c.
func appendPrefix(to []byte, kind byte, c chunk) []byte {
	at := len(to)
	to = append(to, 'M', 'W', kind, 0)
	to = binary.LittleEndian.AppendUint32(to, c.index|uint32(c.at))
	to = binary.LittleEndian.AppendUint64(to, c.tag)
	to = binary.LittleEndian.AppendUint64(to, uint64(c.total))
	to = binary.LittleEndian.AppendUint32(to, uint32(c.at>>32))
	return binary.LittleEndian.AppendUint32(to, crc32.Checksum(to[at:], castagnoli))
}

// readPrefix reads what appendPrefix wrote.
func readPrefix(p []byte) (kind byte, c chunk, err error) {
	le := binary.LittleEndian
	end := prefixBytes - crc32.Size
	if p[0] != 'M' || p[1] != 'W' || p[3] != 0 || le.Uint32(p[end:]) != crc32.Checksum(p[:end], castagnoli) {
		return 0, c, fmt.Errorf("what follows begins with %x, and is no frame", p[:8])
	}
	kind, c.index, c.tag = p[2], le.Uint32(p[4:]), le.Uint64(p[8:])
	total, high, odd := le.Uint64(p[16:]), le.Uint32(p[end-4:]), false
	if kind == kindLent {
		c.at, c.index, high = uint64(high)<<32|uint64(c.index), 0, 0
	}
	c.total = int64(total)
	switch kind {
	case kindChunk, kindLent:
		if total > wire.MaxBytes {
			return 0, c, fmt.Errorf("a frame of %d bytes; it has at most %d", total, int64(wire.MaxBytes))
		}
		if int64(c.index) >= chunksOf(c.total) {
			return 0, c, fmt.Errorf("chunk %d of a frame of %d bytes, which has %d", c.index, c.total, chunksOf(c.total))
		}
	case kindOffer:
	case kindTaken, kindBack:
		odd = c != chunk{tag: c.tag}
	default:
		odd = c != chunk{} || kind != kindLeave && kind != kindReads
	}
	if odd || high != 0 {
		return 0, c, fmt.Errorf("a frame of kind %d: %x", kind, p)
	}
	return kind, c, nil
}
