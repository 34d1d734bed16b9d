// Package kind is the table of instruction kinds, with everything about each kind in one place.
//
// Input: a Kind, or its letters in an instruction's text or a recorded event. Output: its row of the table. Package
// schedule gives the kinds their public names. Package trace does not import schedule; it finds kinds by their letters.
// A new kind needs one constant and one row here.
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
	DR                 // drain: wait until every worker has reached its DR
	SG                 // send the gradients of a minibatch to the worker that holds the weights
	RG                 // receive those gradients, on the worker that holds the weights
	SW                 // send the newest weights to the worker of the next minibatch
	RW                 // receive those weights
	UR                 // update of a reference model, on the worker's second thread
)

// Lane is the row of a worker's timeline in which an instruction is drawn.
type Lane string

// Compute is the row for instructions that occupy the worker itself. Comm is the row for transfers and waits.
const (
	Compute Lane = "compute"
	Comm    Lane = "comm"
	// Beside is the row for the worker's second thread, which holds a reference model.
	Beside Lane = "reference"
)

// Info holds the properties of a kind.
type Info struct {
	Letters    string // in an instruction's text
	Plain      string // in words, for a reader who has not seen the vocabulary
	Computes   bool   // occupies the device, and takes a core if workers share cores
	Sends      bool   // hands a message to other workers
	Receives   bool   // takes a message from another worker
	Collective bool   // several workers take part, each with an instruction of its own
	Beside     bool   // the worker's second thread executes these instructions, one at a time
	Minibatch  bool   // its number counts minibatches rather than micro-batches
	Lane       Lane
}

// Issued reports whether the instruction only starts its work, which continues while the worker goes on.
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

// All returns the kinds in the table's order.
func All() []Kind {
	all := make([]Kind, 0, len(table)-1)
	for k := F; k.Known(); k++ {
		all = append(all, k)
	}
	return all
}

// Parse returns the kind with these letters.
func Parse(letters string) (Kind, bool) {
	for k := F; k.Known(); k++ {
		if table[k].Letters == letters {
			return k, true
		}
	}
	return 0, false
}

// Of returns the row of the kind with these letters.
func Of(letters string) Info {
	if k, ok := Parse(letters); ok {
		return table[k]
	}
	return Info{Letters: letters, Plain: letters}
}

// Known reports whether the table has the kind.
func (k Kind) Known() bool { return k > 0 && int(k) < len(table) }

// Info returns the kind's row of the table.
func (k Kind) Info() *Info {
	if k.Known() {
		return &table[k]
	}
	return &Info{Letters: k.String(), Plain: k.String()}
}

// String returns the kind's letters in an instruction's text.
func (k Kind) String() string {
	if k.Known() {
		return table[k].Letters
	}
	return "?" + strconv.Itoa(int(k))
}

// set is a bit set of kinds, made from the table for speed: the simulator looks up kinds several times per
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

// has reports whether a kind is in the set; an unknown kind never is.
func (s set) has(k Kind) bool { return s>>k&1 != 0 }

// IsCompute reports whether the kind occupies the device, so that it takes a core if workers share cores.
func (k Kind) IsCompute() bool { return computing.has(k) }

// IsSend reports whether the instruction hands a message to other workers.
func (k Kind) IsSend() bool { return sending.has(k) }

// IsReceive reports whether the instruction takes a message from another worker.
func (k Kind) IsReceive() bool { return receiving.has(k) }

// IsCollective reports whether several workers take part in the instruction.
func (k Kind) IsCollective() bool { return collective.has(k) }

// IsIssued reports whether the instruction only starts its work, which continues while the worker goes on.
func (k Kind) IsIssued() bool { return issued.has(k) }

// OfMinibatch reports whether an instruction's number counts minibatches rather than micro-batches.
func (k Kind) OfMinibatch() bool { return minibatch.has(k) }

// Lane returns the row of a worker's timeline in which the instruction is drawn.
func (k Kind) Lane() Lane { return k.Info().Lane }
