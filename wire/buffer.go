package wire

import "fmt"

// Memory is a kind of memory.
type Memory uint8

// The kinds of memory that a buffer may lie in.
const (
	Host   Memory = iota // of the process: Data says where
	Pinned               // of the process, which a device reads by itself: Data says where
	Device               // of a device
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
	Number int // of the device
}

// DType is the type of a buffer's elements, as headers number it.
type DType uint8

// The element types that travel.
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

// Size is the bytes of one element, 0 for a type that does not travel.
func (d DType) Size() int64 {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

// String is the type's name as safetensors has it.
func (d DType) String() string {
	if d.Size() == 0 {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// DTypeOf is the type of a safetensors name; 0 where it does not travel.
func DTypeOf(name string) DType {
	for d := range dtypes {
		if d > 0 && dtypes[d].name == name {
			return DType(d)
		}
	}
	return 0
}

// Event marks the point in a device's work behind which a buffer is complete.
type Event interface {
	Done() bool  // whether the device has come there
	Wait() error // blocks until it has
}

// Holder keeps the memory of a buffer. Whoever has it last frees it, once; any goroutine may.
type Holder interface{ Free() }

// Buffer is one tensor of a message: contiguous, little-endian.
type Buffer struct {
	Value uint32 // which of the model's values it is, or what sender and receiver agree on
	DType DType
	Shape []int64
	Place Place
	Data  []byte // its bytes, where Place is of the process
	Ready Event  // nil: it is complete
	// Owner goes to the receiver where memory changes hands, and is freed behind the last byte where bytes
	// travel. Without one the memory is lent: it is the sender's again once the send is done.
	Owner Holder

	own     bool    // a frame of the port's own
	message *Header // of a frame that hands a whole message over
}

// Payload is how many bytes of tensors a frame moves: none where it is the port's own, unless it hands a
// message over.
func (b *Buffer) Payload() int64 {
	switch {
	case b.message != nil:
		return b.message.Bytes()
	case b.own:
		return 0
	}
	return b.Bytes()
}

// Header is the header of the message that a frame begins, if it begins one.
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

// Bytes is the elements' size, whatever lies in Data.
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
