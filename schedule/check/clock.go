package check

import "github.com/millrace-ml/millrace/schedule"

// clock is how many instructions of each worker's list are known to have been issued.
type clock []int32

func (c clock) learn(other clock) {
	for w, n := range other {
		c[w] = max(c[w], n)
	}
}

// traffic is the messages of an edge.
type traffic struct {
	sent  int
	taken []int32 // places in the receiver's list at which messages were taken that the sender does not know of
	known int     // messages that the sender knows to be taken
	most  int     // that may lie there
	peaks []int   // and at sends of each repetition of the body
}

// carried is a message's clock, until all who take it have.
type carried struct {
	clock  clock
	repeat int
	left   int
}

// meeting is a collective that is being issued.
type meeting struct {
	clock       clock
	first, last int   // repetitions in which members issue it
	left        int   // members that have not come
	who         []int // their workers
}

// joining is a collective whose result a worker has not waited for.
type joining struct {
	in schedule.Instruction
	*meeting
}
