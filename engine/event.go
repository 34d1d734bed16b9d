package engine

import "time"

// Point is a point in a device's work that can be waited for.
type Point interface {
	// Done says whether the point has been reached. It does not wait.
	Done() bool
	// Wait blocks until the point is reached, and returns the error of earlier work. Any goroutine may call it.
	Wait() error
}

// Event marks a point in the work issued on a stream. It is set when all work before it is done, or when some of
// that work has failed.
type Event interface {
	Point
	// At waits until the event is set. It returns the time at which it was set, by this process's clock.
	At() time.Time
}

// Past is an Event that is set; its value is the time at which it was set. Devices whose work is done when a call
// returns record this kind of Event.
type Past time.Time

// Done implements Point.
func (Past) Done() bool { return true }

// Wait implements Point.
func (Past) Wait() error { return nil }

// At implements Event.
func (p Past) At() time.Time { return time.Time(p) }

// Stream runs work on a device in the order of issue, possibly after the issuing call has returned. Only Await orders
// the work of two streams.
type Stream interface {
	// Record marks the point after everything issued so far. If no event can be made, the Wait method of the returned
	// Event returns the error.
	Record() Event
	// Await makes all work issued from now on run after p. If work is done as soon as it is issued, as on a CPU, the
	// caller itself waits for p.
	Await(p Point) error
}
