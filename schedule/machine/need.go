package machine

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Lack says what keeps an instruction from starting.
type Lack uint8

// What a worker may wait for.
const (
	Nothing    Lack = iota // the instruction may start
	Message                // the message in the field For has not arrived from the worker Peer
	Collective             // the collective in the field For is not complete
	Device                 // the computation For is issued and not done, and no further computation may be issued
	Slot                   // the edge to Peer has no free slot
	Core                   // all cores are taken
	Drain                  // some worker has not reached the drain yet, or has something open
	Held                   // a stop is being agreed on
	Running                // the worker has already started the instruction
	Ended                  // the list has ended
	Ahead                  // sending the weights would let a trainer get too far ahead of Peer
)

// Need is what keeps a worker from starting its next instruction.
type Need struct {
	Worker int
	At     schedule.Instruction // the instruction that the worker would start
	Lack   Lack
	For    schedule.Instruction // the message, collective or computation that is lacking
	Peer   int                  // the worker that sends the message, has no free slot, or is too far behind
}

// Ready reports whether nothing is lacking.
func (n Need) Ready() bool { return n.Lack == Nothing }

// Blocker returns the short text for a Timeline: an instruction, "core", "slot", "drain", "stop" or "staleness". It is
// "" if the worker waits for none of these.
func (n Need) Blocker() string {
	switch n.Lack {
	case Message, Collective, Device:
		return n.For.String()
	case Slot:
		return "slot"
	case Core:
		return "core"
	case Drain:
		return "drain"
	case Held:
		return "stop"
	case Ahead:
		return "staleness"
	}
	return ""
}

// String returns a sentence for a stall report.
func (n Need) String() string { return n.Told(byNumber) }

// byNumber names a worker by its number.
func byNumber(worker int) string { return fmt.Sprintf("worker %d", worker) }

// Told returns the same sentence as String, but uses the names that `name` returns for workers.
func (n Need) Told(name func(worker int) string) string {
	why := ""
	switch n.Lack {
	case Nothing:
		return fmt.Sprintf("%s may start %v", name(n.Worker), n.At)
	case Running:
		return fmt.Sprintf("%s is at %v", name(n.Worker), n.At)
	case Ended:
		return fmt.Sprintf("%s has ended", name(n.Worker))
	case Drain:
		return fmt.Sprintf("%s cannot pass %v: not every worker is there with nothing in flight", name(n.Worker), n.At)
	case Message:
		why = fmt.Sprintf("%v from %s has not arrived", n.For, name(n.Peer))
	case Collective:
		why = fmt.Sprintf("%v is not complete", n.For)
	case Device:
		why = fmt.Sprintf("%v is not done", n.For)
	case Slot:
		why = fmt.Sprintf("every slot of its edge to %s is taken", name(n.Peer))
	case Core:
		why = "every core is taken"
	case Ahead:
		why = fmt.Sprintf("the worker that takes it is as far ahead of %s as it may be", name(n.Peer))
	case Held:
		why = "where to stop is being agreed on"
	}
	return fmt.Sprintf("%s cannot start %v: %s", name(n.Worker), n.At, why)
}
