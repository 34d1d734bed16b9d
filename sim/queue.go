package sim

import "github.com/millrace-ml/millrace/schedule"

// event is something that happens to a worker at a moment.
type event struct {
	at     float64
	seq    int64 // breaks ties by the order in which events were made
	worker int32
	from   int32 // the other worker of an arrival or a credit
	in     schedule.Instruction
	what   happening
}

// happening is what can happen to a worker.
type happening uint8

const (
	hostEnd   happening = iota // its host is done with the instruction that its list is at
	deviceEnd                  // its device is done with a computation that its host had issued
	summed                     // a collective that it has issued is complete
	arrival                    // a message is there
	occupying                  // an arrival that kept both devices busy
	credit                     // a slot of its edge is free again
)

// queue is what is to happen, a binary heap of events by (at, seq), and the clock: nothing in it is before now.
type queue struct {
	now    float64
	events []event
	made   int64
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// push moves what comes later down until there is a place for e.
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

// pop takes the first event, and moves what comes sooner up until there is a place for the last.
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
	q.now = top.at
	return top
}
