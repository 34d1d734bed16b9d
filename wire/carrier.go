package wire

import "fmt"

// A tag is epoch, edge and number on the edge in a word, of the frames from one worker to another.
const (
	EpochBits  = 12
	EdgeBits   = 20
	NumberBits = 32
	MaxEdges   = 1 << EdgeBits
)

// TagOf is the word by which carriers with tags match frames from one worker to another: those of another worker
// may have the same. Epochs are counted modulo 1<<EpochBits.
func TagOf(epoch, edge, n uint32) uint64 {
	return uint64(epoch&(1<<EpochBits-1))<<(EdgeBits+NumberBits) | uint64(edge&(MaxEdges-1))<<NumberBits | uint64(n)
}

// Edge is a directed pair of workers, or of members of a collective.
type Edge struct {
	ID       uint32 // below MaxEdges, of those from one worker to another: the same at both ends
	From, To int    // workers; the same one where members of a collective share it
	Slots    int    // messages that may lie with the receiver at once; 0: as many as the Program sends
	Class    Class
}

// Class is what an edge carries.
type Class uint8

// The classes. What waits in one never holds up another, since every edge is of one.
const (
	Transfers   Class = iota // messages taken by Key, which Config.Arrived is told of
	Collectives              // messages taken in their order, by Port.Receive
	Credits                  // slots posted for other edges; nobody sends or takes messages
)

// Carrier moves frames between one worker and others. Its methods may be called from any goroutine and do not
// block. What is said with done, once for each call, is said on any goroutine, under no lock of the carrier,
// and maybe before the call returns.
//
// Frames of an edge are sent and received in ascending numbers, without a gap, over all epochs. One may come
// before its receive is posted. It waits then, and what was sent behind it to the same worker may wait with it:
// whoever drives a carrier posts the receives of an edge without waiting for frames of another. A carrier is
// the second witness of who is dead: what was posted with a worker that it cannot reach any more stays posted
// until Fail or Close, or ends with a PeerError when there was time for Fail to say more.
type Carrier interface {
	// Rank is the worker whose carrier it is.
	Rank() int
	// Address is what other workers need to reach this one. It is the same until Close.
	Address() Address
	// Connect tells the carrier another worker's address, before anything is posted with it. Unequal engines
	// and versions are refused.
	Connect(rank int, a Address) error
	// Takes says whether buffers in a place can be sent to a worker and received from it as they are.
	Takes(rank int, p Place) bool
	// HandsOver says that memory changes hands with a worker: a posted receive needs none, and gets the
	// sender's. The worker's carrier says the same of this one.
	HandsOver(rank int) bool
	// Send posts frames, which are complete, as the n-th of an edge and those behind it. They and the list are
	// the carrier's until done, which is said once for all. The epoch is for the tag alone (TagOf).
	Send(epoch uint32, e Edge, n uint32, frames []*Buffer, done func(error))
	// Recv posts b for the n-th frame of an edge, of whatever epoch, whose length must be b's: a LengthError
	// otherwise. It is the carrier's until done. Its bytes can be read then, or once b.Ready is set that the
	// carrier gave it.
	Recv(e Edge, n uint32, b *Buffer, done func(error))
	// Moved is how many bytes have gone and come so far, or more, be their frames whole or not: it grows as long as some
	// do. What changes hands, or is whole at once, does not count.
	Moved() int64
	// Describe says which transport and device an edge uses in fact.
	Describe(e Edge) string
	// Fail ends every send and receive with a worker, posted or to come, with err, within milliseconds. The
	// first err of a worker stays.
	Fail(rank int, err error)
	// Close ends everything posted with ErrClosed, and what is posted later. When it returns nothing of the
	// carrier runs any more, on whichever goroutine.
	Close() error
}

// MaxAddress bounds an Address in bytes.
const MaxAddress = 1 << 10

// Address is where a carrier is reached. Only carriers of the same engine look into Data.
type Address struct {
	Engine  string `json:"engine"`
	Version string `json:"version"`
	Data    []byte `json:"data"`
}

// Check refuses an address that a carrier of the given one cannot reach, or that is too long.
func (a Address) Check(own Address) error {
	switch n := len(a.Engine) + len(a.Version) + len(a.Data); {
	case n > MaxAddress:
		return fmt.Errorf("wire: an address of %d bytes; it has at most %d", n, MaxAddress)
	case a.Engine != own.Engine:
		return fmt.Errorf("wire: the peer's carrier is %q, this one %q; both must be the same", a.Engine, own.Engine)
	case a.Version != own.Version:
		return fmt.Errorf("wire: the peer's %s is version %q, this one %q; both must be the same", a.Engine, a.Version,
			own.Version)
	}
	return nil
}

// LengthError is a frame that is not as long as the receive posted for it.
type LengthError struct {
	Edge       Edge
	N          uint32
	Sent, Room int64
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("wire: frame %d from worker %d to worker %d has %d bytes; the receive posted for it has %d",
		e.N, e.Edge.From, e.Edge.To, e.Sent, e.Room)
}
