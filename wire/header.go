package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Header describes a message; it is sent before the message's buffers.
type Header struct {
	Epoch uint32
	Key   uint64 // the instruction that sent the message, or the round of a collective
	Step  uint32
	SentS float64  // when it was posted, in seconds on the sender's clock
	Parts []Buffer // values, types and shapes; without memory
}

// Limits of a message, checked before any memory of its size is allocated.
const (
	HeaderBytes = 256     // size of a header frame
	MaxParts    = 1 << 16 // most buffers of a message
	MaxRank     = 16      // most dimensions of a buffer
	MaxBytes    = 1 << 40 // most bytes of a message
)

// A header frame begins with magic, version, epoch, key, step, sizes and send time. The sizes are the number of parts,
// the bytes of all parts, and the bytes of descriptions outside this frame. Then come as many descriptions as fit; the
// rest follow in a frame of their own. A description is value, type, rank, and one length for each dimension.
const (
	magic       = 0x574d // "MW"
	version     = 1
	fixedBytes  = 48
	describedAt = 8 // bytes of a description before its lengths
)

// Bytes returns the size of all parts.
func (h *Header) Bytes() int64 {
	n := int64(0)
	for i := range h.Parts {
		n += h.Parts[i].Bytes()
	}
	return n
}

// check refuses a header beyond the limits.
func (h *Header) check() error {
	if len(h.Parts) > MaxParts {
		return fmt.Errorf("wire: a message of %d tensors; it has at most %d", len(h.Parts), MaxParts)
	}
	total := int64(0)
	for i := range h.Parts {
		n, err := bytesOf(h.Parts[i].DType, h.Parts[i].Shape)
		if err != nil {
			return fmt.Errorf("wire: tensor %d of a message: %w", i, err)
		}
		if total += n; total > MaxBytes {
			return fmt.Errorf("wire: a message of more than %d bytes", int64(MaxBytes))
		}
	}
	return nil
}

// Encode writes the header frame into `room`. `rest` holds the descriptions that do not fit, or nil.
func (h *Header) Encode(room []byte) (frame, rest []byte, err error) {
	if err := h.check(); err != nil {
		return nil, nil, err
	}
	frame = slices.Grow(room[:0], HeaderBytes)[:HeaderBytes]
	clear(frame)
	frame = frame[:fixedBytes]
	for i := range h.Parts {
		p := &h.Parts[i]
		frame = binary.LittleEndian.AppendUint32(frame, p.Value)
		frame = append(frame, byte(p.DType), byte(len(p.Shape)), 0, 0)
		for _, n := range p.Shape {
			frame = binary.LittleEndian.AppendUint64(frame, uint64(n))
		}
	}
	if len(frame) > HeaderBytes {
		rest = frame[HeaderBytes:]
	}
	le := binary.LittleEndian
	le.PutUint16(frame[0:], magic)
	frame[2] = version
	le.PutUint32(frame[4:], h.Epoch)
	le.PutUint64(frame[8:], h.Key)
	le.PutUint32(frame[16:], h.Step)
	le.PutUint32(frame[20:], uint32(len(h.Parts)))
	le.PutUint64(frame[24:], math.Float64bits(h.SentS))
	le.PutUint64(frame[32:], uint64(h.Bytes()))
	le.PutUint32(frame[40:], uint32(len(rest)))
	if len(frame) < HeaderBytes {
		frame = frame[:HeaderBytes]
	}
	return frame[:HeaderBytes:HeaderBytes], rest, nil
}

// bytesOf returns the size of a tensor, or an error if the type or shape cannot be sent.
func bytesOf(d DType, shape []int64) (int64, error) {
	n := d.Size()
	if n == 0 {
		return 0, fmt.Errorf("elements of type %d; F32, F64, I64, U8 and BOOL travel", uint8(d))
	}
	if len(shape) > MaxRank {
		return 0, fmt.Errorf("%d dimensions; it has at most %d", len(shape), MaxRank)
	}
	empty := false
	for _, s := range shape {
		if s < 0 {
			return 0, fmt.Errorf("shape %v", shape)
		}
		empty = empty || s == 0
	}
	if empty {
		return 0, nil
	}
	for _, s := range shape {
		if s > MaxBytes/n {
			return 0, fmt.Errorf("shape %v of %v is over %d bytes", shape, d, int64(MaxBytes))
		}
		n *= s
	}
	return n, nil
}

// RestOf returns how many bytes of descriptions follow a header frame, or an error if the frame is not a header.
func RestOf(frame []byte) (int, error) {
	le := binary.LittleEndian
	if len(frame) != HeaderBytes {
		return 0, fmt.Errorf("wire: a header of %d bytes; it has %d", len(frame), HeaderBytes)
	}
	if got := le.Uint16(frame); got != magic || frame[2] != version || frame[3] != 0 {
		return 0, fmt.Errorf("wire: a frame begins with %04x, version %d: it is no header of version %d", got, frame[2],
			version)
	}
	parts, rest := le.Uint32(frame[20:]), le.Uint32(frame[40:])
	if parts > MaxParts {
		return 0, fmt.Errorf("wire: a header of %d tensors; it has at most %d", parts, MaxParts)
	}
	if rest > MaxParts*(describedAt+8*MaxRank) {
		return 0, fmt.Errorf("wire: a header with %d bytes more of descriptions", rest)
	}
	return int(rest), nil
}

// Decode reads what Encode wrote.
func Decode(frame, rest []byte) (Header, error) {
	var h Header
	long, err := RestOf(frame)
	if err != nil {
		return h, err
	}
	if len(rest) != long {
		return h, fmt.Errorf("wire: %d bytes of descriptions behind a header that says %d", len(rest), long)
	}
	le := binary.LittleEndian
	h.Epoch, h.Key, h.Step = le.Uint32(frame[4:]), le.Uint64(frame[8:]), le.Uint32(frame[16:])
	h.SentS = math.Float64frombits(le.Uint64(frame[24:]))
	parts, total := le.Uint32(frame[20:]), le.Uint64(frame[32:])
	text := frame[fixedBytes:]
	if len(rest) > 0 {
		text = append(text[:len(text):len(text)], rest...)
	}
	at, sum := 0, int64(0)
	for i := range parts {
		if len(text)-at < describedAt {
			return h, fmt.Errorf("wire: a header says %d tensors and describes %d", parts, i)
		}
		b := Buffer{Value: le.Uint32(text[at:]), DType: DType(text[at+4])}
		rank := int(text[at+5])
		if text[at+6] != 0 || text[at+7] != 0 {
			return h, fmt.Errorf("wire: tensor %d of a header: its description is damaged", i)
		}
		at += describedAt
		if rank > MaxRank || len(text)-at < 8*rank {
			return h, fmt.Errorf("wire: tensor %d of a header: %d dimensions", i, rank)
		}
		b.Shape = make([]int64, rank)
		for k := range b.Shape {
			b.Shape[k] = int64(le.Uint64(text[at:]))
			at += 8
		}
		size, err := bytesOf(b.DType, b.Shape)
		if err != nil {
			return h, fmt.Errorf("wire: tensor %d of a header: %w", i, err)
		}
		if sum += size; sum > MaxBytes {
			return h, fmt.Errorf("wire: a header of more than %d bytes", int64(MaxBytes))
		}
		h.Parts = append(h.Parts, b)
	}
	if uint64(sum) != total {
		return h, fmt.Errorf("wire: a header says %d bytes; its tensors have %d", total, sum)
	}
	if len(rest) > 0 && at != len(text) {
		return h, fmt.Errorf("wire: a header has %d bytes behind its last tensor", len(text)-at)
	}
	return h, nil
}
