// Package kind is the table of instruction kinds, with everything about each kind in one place.
//
// Input: a Kind, or its letters in an instruction's text or a recorded event. Output: its row of the table. schedule
// gives the kinds their public names. trace does not import schedule and uses this table by letters. A new kind is
// one constant and one row here.
//
// Nothing is refused. Unknown letters give a row with only these letters, because a recording may come from a later
// version.
package kind

import "strconv"

// Kind says what an instruction does.
type Kind uint8

// These are the kinds. B is the full backward pass. If a schedule splits it, B = I + W (Qi et al., Zero Bubble
// Pipeline Parallelism, where our I is called "B").
const (
	F  Kind = iota + 1 // forward
	B                  // full backward
	I                  // input gradient
	W                  // weight gradient
	SF                 // send activations to the next stage
	RF                 // receive activations from the previous stage
	SB                 // send gradients to the previous stage
	RB                 // receive gradients from the next stage
	AR                 // all-reduce of a stage's gradients over its replicas
	TG                 // sum of the gradients of tied parameters over the stages that hold them
	GN                 // global gradient norm: every stage contributes, every stage learns it
	U                  // update
	PV                 // post-validation of an update that did not wait for the gradient norm
	CK                 // checkpoint
	EV                 // forward of an evaluation micro-batch
	DR                 // drain: nothing passes until every worker is here
	SG                 // send the gradients of a minibatch to the worker that holds the weights
	RG                 // receive them there
	SW                 // send the newest weights to a worker, for its next minibatch
	RW                 // receive them
	UR                 // update of a reference model, beside the worker
)

// Lane is the row of a worker's timeline that an instruction is drawn in.
type Lane string

// The lanes: what keeps the worker itself, what moves or waits, and what another thread of it does.
const (
	Compute Lane = "compute"
	Comm    Lane = "comm"
	// Beside is a thread of the worker's own that holds a reference model.
	Beside Lane = "reference"
)

// Info is what a kind is.
type Info struct {
	Letters    string // in an instruction's text
	Plain      string // in words, for a reader who has not seen the vocabulary
	Computes   bool   // it keeps the device busy: it takes a core where workers share cores
	Sends      bool   // it hands a message to other workers
	Receives   bool   // it takes a message of another worker's
	Collective bool   // several workers join in it, each with an instruction of its own
	Beside     bool   // another thread of the worker does it, one after the other
	Minibatch  bool   // its number counts minibatches rather than micro-batches
	Lane       Lane
}

// Issued says whether the work goes on beside the worker once it has begun.
func (i Info) Issued() bool { return i.Sends || i.Collective || i.Beside }

var table = [...]Info{
	F:  {Letters: "F", Plain: "forward", Computes: true, Lane: Compute},
	B:  {Letters: "B", Plain: "backward", Computes: true, Lane: Compute},
	I:  {Letters: "I", Plain: "input gradient", Computes: true, Lane: Compute},
	W:  {Letters: "W", Plain: "weight gradient", Computes: true, Lane: Compute},
	SF: {Letters: "SF", Plain: "send activations", Sends: true, Lane: Comm},
	RF: {Letters: "RF", Plain: "receive activations", Receives: true, Lane: Comm},
	SB: {Letters: "SB", Plain: "send gradients", Sends: true, Lane: Comm},
	RB: {Letters: "RB", Plain: "receive gradients", Receives: true, Lane: Comm},
	AR: {Letters: "AR", Plain: "all-reduce", Collective: true, Minibatch: true, Lane: Comm},
	TG: {Letters: "TG", Plain: "sum of tied gradients", Collective: true, Minibatch: true, Lane: Comm},
	GN: {Letters: "GN", Plain: "global gradient norm", Collective: true, Minibatch: true, Lane: Comm},
	U:  {Letters: "U", Plain: "update", Computes: true, Minibatch: true, Lane: Compute},
	PV: {Letters: "PV", Plain: "validate the update", Minibatch: true, Lane: Comm},
	CK: {Letters: "CK", Plain: "checkpoint", Minibatch: true, Lane: Compute},
	EV: {Letters: "EV", Plain: "evaluation forward", Computes: true, Lane: Compute},
	DR: {Letters: "DR", Plain: "drain", Minibatch: true, Lane: Comm},
	SG: {Letters: "SG", Plain: "send gradients to the weights", Sends: true, Minibatch: true, Lane: Comm},
	RG: {Letters: "RG", Plain: "receive gradients for the weights", Receives: true, Minibatch: true, Lane: Comm},
	SW: {Letters: "SW", Plain: "send the newest weights", Sends: true, Minibatch: true, Lane: Comm},
	RW: {Letters: "RW", Plain: "receive the newest weights", Receives: true, Minibatch: true, Lane: Comm},
	UR: {Letters: "UR", Plain: "update of the reference beside", Beside: true, Minibatch: true, Lane: Beside},
}

// All lists the kinds in the table's order.
func All() []Kind {
	all := make([]Kind, 0, len(table)-1)
	for k := F; k.Known(); k++ {
		all = append(all, k)
	}
	return all
}

// Parse finds the kind that has these letters.
func Parse(letters string) (Kind, bool) {
	for k := F; k.Known(); k++ {
		if table[k].Letters == letters {
			return k, true
		}
	}
	return 0, false
}

// Of is the row of the kind that has these letters.
func Of(letters string) Info {
	if k, ok := Parse(letters); ok {
		return table[k]
	}
	return Info{Letters: letters, Plain: letters}
}

// Known says whether the table has the kind.
func (k Kind) Known() bool { return k > 0 && int(k) < len(table) }

// Info is the kind's row of the table.
func (k Kind) Info() *Info {
	if k.Known() {
		return &table[k]
	}
	return &Info{Letters: k.String(), Plain: k.String()}
}

// String is the letters of the kind in an instruction's text.
func (k Kind) String() string {
	if k.Known() {
		return table[k].Letters
	}
	return "?" + strconv.Itoa(int(k))
}

// set is some of the kinds, a bit each, read off the table: a player asks what a kind is several times an
// instruction.
type set uint32

func setOf(is func(Info) bool) (s set) {
	for k := F; k.Known(); k++ {
		if is(table[k]) {
			s |= 1 << k
		}
	}
	return s
}

var (
	computing  = setOf(func(i Info) bool { return i.Computes })
	sending    = setOf(func(i Info) bool { return i.Sends })
	receiving  = setOf(func(i Info) bool { return i.Receives })
	collective = setOf(func(i Info) bool { return i.Collective })
	issued     = setOf(Info.Issued)
	minibatch  = setOf(func(i Info) bool { return i.Minibatch })
)

// has says whether a kind is in the set; one that the table does not have is in none.
func (s set) has(k Kind) bool { return s>>k&1 != 0 }

// IsCompute says whether the kind keeps the device itself busy, so that it takes
// a core where workers share cores.
func (k Kind) IsCompute() bool { return computing.has(k) }

// IsSend says whether the instruction hands a message to other workers.
func (k Kind) IsSend() bool { return sending.has(k) }

// IsReceive says whether the instruction takes a message of another worker's.
func (k Kind) IsReceive() bool { return receiving.has(k) }

// IsCollective says whether several workers join in the instruction.
func (k Kind) IsCollective() bool { return collective.has(k) }

// IsIssued says whether the instruction's work goes on beside the worker once it has begun.
func (k Kind) IsIssued() bool { return issued.has(k) }

// OfMinibatch says whether an instruction's number counts minibatches rather than micro-batches.
func (k Kind) OfMinibatch() bool { return minibatch.has(k) }

// Lane is the row of a worker's timeline that the instruction is drawn in.
func (k Kind) Lane() Lane { return k.Info().Lane }
