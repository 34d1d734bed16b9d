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

// queue is a binary heap of events by (at, seq).
type queue struct {
	events []event
	made   int64
}

func (q *queue) less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *queue) push(e event) {
	q.made++
	e.seq = q.made
	q.events = append(q.events, e)
	for i := len(q.events) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q.events[i], q.events[up] = q.events[up], q.events[i]
		i = up
	}
}

func (q *queue) pop() event {
	top, last := q.events[0], len(q.events)-1
	q.events[0] = q.events[last]
	q.events = q.events[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && q.less(down, least) {
				least = down
			}
		}
		if least == i {
			return top
		}
		q.events[i], q.events[least] = q.events[least], q.events[i]
		i = least
	}
}
