package check

import "github.com/millrace-ml/millrace/schedule"

// clock is what a worker knows about all lists: by worker, how many instructions have certainly been issued.
type clock []int32

func (c clock) learn(other clock) {
	for w, n := range other {
		c[w] = max(c[w], n)
	}
}

// traffic counts the messages of an edge.
type traffic struct {
	sent  int
	taken []int32 // receives that the sender does not know of yet, by position in the receiver's list
	known int     // messages that the sender knows to be received
	most  int     // the most messages that may be in flight or waiting on the edge
	peaks []int   // by repetition of the body: like `most`, but only for that repetition's sends
}

// carried is what a message tells its receivers: the sender's clock when it was sent. It is kept until all receivers
// have taken the message.
type carried struct {
	clock  clock
	repeat int
	left   int
}

// meeting is a collective that not all members have issued yet.
type meeting struct {
	clock       clock
	first, last int   // first and last repetition in which a member issues it
	left        int   // number of members that have not issued the collective
	who         []int // the members' workers
}

// joining is a collective that a worker has issued, and for whose result it has not waited yet.
type joining struct {
	in schedule.Instruction
	*meeting
}
