package wire

import "fmt"

// A tag packs epoch, edge and frame number of frames between two workers into one 64-bit word.
const (
	EpochBits  = 12
	EdgeBits   = 20
	NumberBits = 32
	MaxEdges   = 1 << EdgeBits
)

// TagOf returns the word by which carriers with tags match the frames from one worker to another. Tags of different
// pairs of workers may be equal. Epochs are counted modulo 1<<EpochBits.
func TagOf(epoch, edge, n uint32) uint64 {
	return uint64(epoch&(1<<EpochBits-1))<<(EdgeBits+NumberBits) | uint64(edge&(MaxEdges-1))<<NumberBits | uint64(n)
}

// Edge is a directed pair of workers, or of members of a collective.
type Edge struct {
	ID       uint32 // unique among the edges from From to To, below MaxEdges, equal at both ends
	From, To int    // workers; equal where members of a collective share one worker
	Slots    int    // the most messages that may wait at the receiver; 0: only the Program limits them
	Class    Class
}

// Class is what an edge carries.
type Class uint8

// The classes. Each edge has one class, so messages of one class never hold up another class.
const (
	Transfers   Class = iota // messages taken by Key; Config.Arrived reports them
	Collectives              // messages taken in order, by Port.Receive
	Credits                  // slots posted for other edges; no messages
)

// Carrier moves frames between one worker and others. Its methods may be called from any goroutine and do not block.
// Each function `done` is called once for each call of Send or Recv. That may happen on any goroutine, and before the
// method returns, but never under a lock of the carrier.
//
// Frames of an edge are sent and received in the order of their numbers, without a gap, over all epochs. A frame may
// arrive before its receive is posted. It then waits, and so may all later frames to the same worker. The caller
// therefore posts the receives of an edge without waiting for frames of another edge.
//
// A carrier cannot be sure that a worker is dead. If it cannot reach a worker, frames posted with that worker stay
// posted until Fail or Close. A carrier may also end them itself, with a PeerError. If it does not know the reason, it
// first waits long enough for the caller to call Fail with a better reason.
type Carrier interface {
	// Rank returns the worker that this carrier belongs to.
	Rank() int
	// Address returns what other workers need to reach this one. It does not change until Close.
	Address() Address
	// Connect tells the carrier another worker's address, before anything is posted with that worker. It refuses an
	// address of another engine or version.
	Connect(rank int, a Address) error
	// Takes says whether buffers in the Place p can be sent to a worker, and received from it, without a host copy.
	Takes(rank int, p Place) bool
	// HandsOver says whether frames to and from a worker are moved by handing over their memory, without a copy. A
	// posted receive then needs no memory of its own and gets the sender's. That worker's carrier gives the same answer
	// about this worker.
	HandsOver(rank int) bool
	// Send posts complete frames as numbers n, n+1, ... of an edge. The frames and the list belong to the carrier until
	// it calls `done`, once for all of them. The epoch is only for the tag (TagOf).
	Send(epoch uint32, e Edge, n uint32, frames []*Buffer, done func(error))
	// Recv posts b for frame n of an edge, of any epoch. A frame of another length than b's gives a LengthError. b
	// belongs to the carrier until it calls `done`. After that, b's bytes can be read, unless the carrier has set
	// b.Ready: then they can be read once that event is done. The `done` functions of an edge's receives are called in
	// order, one at a time (the duties in the package's documentation).
	Recv(e Edge, n uint32, b *Buffer, done func(error))
	// Moved returns roughly how many bytes have been sent and received so far, unfinished frames included. It keeps
	// growing while any transfer makes progress. Memory that changes hands does not count, nor do frames that arrive
	// whole instead of in parts.
	Moved() int64
	// Describe names the transport and device that an edge really uses.
	Describe(e Edge) string
	// Fail ends every present and later send and receive with a worker within milliseconds, and passes err to each
	// `done`. If Fail is called again for a worker, the first err is kept.
	Fail(rank int, err error)
	// Close ends everything that is posted, and all later calls, with ErrClosed. When it returns, none of the
	// carrier's goroutines or `done` functions runs any more.
	Close() error
}

// MaxAddress is the largest size of an Address in bytes.
const MaxAddress = 1 << 10

// Address says where a carrier is reached. Only carriers of the same engine can read Data.
type Address struct {
	Engine  string `json:"engine"`
	Version string `json:"version"`
	Data    []byte `json:"data"`
}

// Check refuses an address that is too long, or of another engine or version than `own`.
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

// LengthError reports a frame whose length differs from the length of the receive posted for it.
type LengthError struct {
	Edge       Edge
	N          uint32
	Sent, Room int64
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("wire: frame %d from worker %d to worker %d has %d bytes; the receive posted for it has %d",
		e.N, e.Edge.From, e.Edge.To, e.Sent, e.Room)
}
