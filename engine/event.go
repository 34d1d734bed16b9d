package engine

import "time"

// Point is something that can be waited for.
type Point interface {
	// Done says whether it has happened. It does not wait.
	Done() bool
	// Wait blocks until it has, and says what failed in front of it. Any goroutine may.
	Wait() error
}

// Event marks a point in the work issued on a stream. It is set when all work before it is done, or when some of that
// work has failed.
type Event interface {
	Point
	// At is when it was set, by this process's clock; it waits until it is.
	At() time.Time
}

// Past is an Event that was set at a time: what a device records whose work is done when a call returns.
type Past time.Time

// Done implements Point.
func (Past) Done() bool { return true }

// Wait implements Point.
func (Past) Wait() error { return nil }

// At implements Event.
func (p Past) At() time.Time { return time.Time(p) }

// Stream is an order of work on a device: what is issued on it happens in that order, some time after
// the call that issued it has returned. Nothing orders two streams but Await.
type Stream interface {
	// Record marks the point behind everything issued so far. A mark that cannot be made says why at Wait.
	Record() Event
	// Await has everything that is issued from now on happen behind p. The caller waits only where what is
	// issued happens at once, on a CPU.
	Await(p Point) error
}
