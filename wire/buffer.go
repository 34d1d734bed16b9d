package wire

import "fmt"

// Memory is a kind of memory.
type Memory uint8

// The kinds of memory that a buffer can lie in.
const (
	Host   Memory = iota // memory of the process; Data holds the bytes
	Pinned               // memory of the process that a device can read too; Data holds the bytes
	Device               // memory of a device; Data is not used
)

func (m Memory) String() string {
	switch m {
	case Host:
		return "host memory"
	case Pinned:
		return "pinned host memory"
	case Device:
		return "device memory"
	}
	return fmt.Sprintf("memory of kind %d", uint8(m))
}

// Place is where a buffer lies.
type Place struct {
	Memory Memory
	Number int // the device's number, if Memory is Device
}

// DType is the type of a buffer's elements, as headers number it.
type DType uint8

// The element types that can be sent.
const (
	F32 DType = iota + 1
	F64
	I64
	U8
	Bool
)

var dtypes = [...]struct {
	name string
	size int64
}{F32: {"F32", 4}, F64: {"F64", 8}, I64: {"I64", 8}, U8: {"U8", 1}, Bool: {"BOOL", 1}}

// Size returns the bytes of one element, or 0 for a type that cannot be sent.
func (d DType) Size() int64 {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

// String returns the type's name in the safetensors format.
func (d DType) String() string {
	if d.Size() == 0 {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// DTypeOf returns the type of a safetensors name, or 0 if it cannot be sent.
func DTypeOf(name string) DType {
	for d := range dtypes {
		if d > 0 && dtypes[d].name == name {
			return DType(d)
		}
	}
	return 0
}

// Event marks a point in a device's work. A buffer is complete once the device has reached it.
type Event interface {
	Done() bool  // whether the device has reached the point
	Wait() error // blocks until the device has reached the point; returns the error of its work
}

// Holder owns the memory of a buffer. The last user frees it, once, on any goroutine.
type Holder interface{ Free() }

// Buffer is one tensor of a message: contiguous, little-endian.
type Buffer struct {
	Value uint32 // the number of the model's value, or any number that sender and receiver agree on
	DType DType
	Shape []int64
	Place Place
	Data  []byte // the tensor's bytes, if Place is memory of the process
	Ready Event  // nil: the buffer is complete
	// Owner frees the buffer's memory. If the memory itself is handed over, Owner goes to the receiver with it. If the
	// bytes are copied, Owner is freed after the last byte. Without an Owner the memory is only lent: once the send is
	// done, it belongs to the sender again.
	Owner Holder

	own     bool    // whether this is the port's own frame (a header or credits), not a tensor
	message *Header // of a frame that hands a whole message over; nil otherwise
}

// Payload returns how many bytes of tensors a frame moves. A frame that hands over a whole message moves the bytes of
// all its tensors. The port's other own frames move none.
func (b *Buffer) Payload() int64 {
	switch {
	case b.message != nil:
		return b.message.Bytes()
	case b.own:
		return 0
	}
	return b.Bytes()
}

// Header returns the header of the message that this frame begins; false if it begins none.
func (b *Buffer) Header() (Header, bool) {
	if b.message != nil {
		return *b.message, true
	}
	if !b.own {
		return Header{}, false
	}
	h, err := Decode(b.Data, nil)
	return h, err == nil
}

// Bytes returns the size of all elements, computed from type and shape. It does not look at Data.
func (b *Buffer) Bytes() int64 {
	n := b.DType.Size()
	for _, d := range b.Shape {
		n *= d
	}
	return n
}

// Free frees the owner, once.
func (b *Buffer) Free() {
	if b.Owner != nil {
		b.Owner.Free()
		b.Owner = nil
	}
}

// FreeAll frees the owners of all buffers.
func FreeAll(buffers []Buffer) {
	for i := range buffers {
		buffers[i].Free()
	}
}
