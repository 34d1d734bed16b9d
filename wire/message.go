package wire

import (
	"context"
	"errors"
	"fmt"
)

// Owner keeps the bytes of a part alive. The receiver of a message may take it
// over; whoever has it last calls Release once.
type Owner interface {
	Release()
}

// Part is one tensor of a message.
type Part struct {
	Name  string
	DType string // element type by its safetensors name: "F32", "I64"
	Shape []int64
	Data  []byte // contiguous, elements in the machine's byte order
	// Owner is what Data belongs to, handed over without a copy; nil where Data is
	// ordinary memory, and always nil in what came from another process.
	Owner Owner
}

// Message is what one Send carries.
type Message []Part

// Bytes is the length of all parts' data.
func (m Message) Bytes() int64 {
	var n int64
	for _, p := range m {
		n += int64(len(p.Data))
	}
	return n
}

// Release gives back what the message owns: for a message that will not be used.
func (m Message) Release() {
	for i := range m {
		if m[i].Owner != nil {
			m[i].Owner.Release()
			m[i].Owner = nil
		}
	}
}

// Tag tells messages between the same two ranks apart. Messages under one Tag
// arrive in the order they were sent. Phase and Pair are for collectives, which use one
// Tag for several rounds between several members; elsewhere they are 0.
type Tag struct {
	Channel  uint64
	Sequence uint64
	Pair     uint32
	Phase    uint8
}

// Endpoint is one rank's place in a mesh. All methods may be called from any goroutine.
type Endpoint interface {
	Rank() int
	Size() int
	// Send hands m over to rank to. It never waits for the receiver.
	Send(to int, tag Tag, m Message) error
	// Receive waits for the next message from a rank under a tag.
	Receive(ctx context.Context, from int, tag Tag) (Message, error)
	// Take is Receive for a message that has arrived already; false where none has.
	Take(from int, tag Tag) (Message, bool)
	// Notify has f called for every message of phase 0 after it has arrived, those that
	// are here already included. f runs on the delivering goroutine and must not block;
	// nil stops it. Messages that a Receive is waiting for notify like any other.
	Notify(f func(from int, tag Tag))
	// Fail says that this rank cannot go on. Blocked and later calls of every rank
	// return a PeerError that wraps err; the first failure wins.
	Fail(err error)
}

// Mesh is the endpoints of one process.
type Mesh interface {
	Size() int
	Endpoint(rank int) Endpoint
	// Close ends the mesh: blocked calls return ErrClosed, messages nobody received
	// are released, and nothing of the mesh runs afterwards.
	Close() error
}

// ErrClosed is what calls on a closed mesh return.
var ErrClosed = errors.New("wire: the mesh is closed")

// PeerError says which rank failed, and why.
type PeerError struct {
	Rank int
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("wire: rank %d failed: %v", e.Rank, e.Err) }

// Unwrap is the failure itself.
func (e *PeerError) Unwrap() error { return e.Err }
