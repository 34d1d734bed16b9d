package sim

import "github.com/millrace-ml/millrace/schedule"

// event is something that happens to a worker at some time.
type event struct {
	at     float64
	seq    int64 // breaks ties by the order in which events were made
	worker int32
	from   int32 // the other worker of an arrival or a credit, or the version of a flow
	in     schedule.Instruction
	what   happening
}

type happening uint8

const (
	hostEnd   happening = iota // the host has finished, or issued, the current instruction of its list
	deviceEnd                  // the device has finished a computation that its host had issued
	summed                     // a collective, or an update by the reference's thread, is complete
	arrival                    // a message has arrived
	occupying                  // a message that kept both devices busy has arrived
	credit                     // a slot of the edge is free again
	flowed                     // a flow has ended: `worker` is its number, `from` its version
)

// queue holds the clock and the events to come, as a binary heap ordered by (at, seq). No event in it is earlier
// than now.
type queue struct {
	now    float64
	events []event
	made   int64
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// push adds e, and moves later events down in the heap until there is a place for it.
func (q *queue) push(e event) {
	q.made++
	e.seq = q.made
	q.events = append(q.events, e)
	i := len(q.events) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&q.events[up]) {
			break
		}
		q.events[i] = q.events[up]
		i = up
	}
	q.events[i] = e
}

// pop removes and returns the first event, without moving the clock. It moves earlier events up in the heap until
// there is a place for the last one.
func (q *queue) pop() event {
	top, last := q.events[0], len(q.events)-1
	e := q.events[last]
	q.events = q.events[:last]
	i := 0
	for {
		down := 2*i + 1
		if down >= last {
			break
		}
		if right := down + 1; right < last && q.events[right].before(&q.events[down]) {
			down = right
		}
		if !q.events[down].before(&e) {
			break
		}
		q.events[i] = q.events[down]
		i = down
	}
	if last > 0 {
		q.events[i] = e
	}
	return top
}
