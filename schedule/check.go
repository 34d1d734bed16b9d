package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Report is what Check proved of a Program.
type Report struct {
	Instructions    int   `json:"instructions"`
	Messages        int   `json:"messages"`
	PeakActivations []int `json:"peak_activations"` // by worker: micro-batches between their forward and their backward
	// Versions is the most copies of weights each worker keeps at once: one for each of its
	// stages under Sync and Latest, one more for every older version still in use.
	Versions []int `json:"versions"`
}

// CheckError is a Program that must not start: who, where, what.
type CheckError struct {
	Program     string
	Worker      int // -1: no single worker
	Position    int // in the worker's list once lowered, from 0, over all parts; -1: no single place
	Instruction Instruction
	Why         string
	Waits       []Need // of a Program that would block: who would wait for what
	File        string // that it was read from, where a Source was checked

	part, at int            // the place in the Program as it was given; -1: lowering made the instruction
	written  Instruction    // as it stands there, with the ids of its part
	lines    [3]map[int]int // of the file, by part and worker
}

func (e *CheckError) Error() string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace("schedule: program " + e.Program))
	b.WriteString(e.place())
	b.WriteString(": " + e.Why + e.in())
	for _, n := range e.Waits {
		b.WriteString("\n  " + n.String())
		if line := e.lineOf(n.Worker); line > 0 {
			fmt.Fprintf(&b, " (line %d)", line)
		}
	}
	return b.String()
}

// checkRepeats is how many repetitions of a long body are checked: a fault in how
// one meets the next shows between the first and the second, or the second and the
// third once a prologue has passed.
const checkRepeats = 4

// Check proves, before anything runs, that a Program can run to its end: fields in
// range, every instruction on a worker that holds its stage, everything an
// instruction needs made before it, each micro-batch's forward and backward exactly
// once on each stage (B, or I and then W), one update of each stage for each
// minibatch after all its gradients, no message without a taker, and no deadlock.
// A compute-only Program is lowered for the purpose. Bodies repeated more than
// four times are checked for four, and for as many more as the prologue is long, since
// what it leaves in flight has passed by then. Without a flush every forward must also find the
// version of the weights that the policy gives it, and the report says how many are kept.
func Check(p *Program) (Report, error) {
	if err := p.Validate(); err != nil {
		return Report{}, err
	}
	rep, q, err := check(p)
	var wrong *CheckError
	if errors.As(err, &wrong) {
		given := *p
		given.Repeat = q.Repeat
		wrong.locate(&given, q)
	}
	return rep, err
}

// check also returns the Program that positions in its errors count in: lowered, and with as
// many repetitions as are checked.
func check(p *Program) (Report, *Program, error) {
	q := p
	if !p.Lowered {
		var err error
		if q, err = Lower(p, LowerOptions{Tied: p.Tied, Clip: p.Clip}); err != nil {
			return Report{}, p, err
		}
	}
	short := *q
	short.Repeat = min(q.Repeat, checkRepeats+q.prologueRepeats())
	var rep Report
	total := newTally(&short)
	for w := range short.Workers {
		if err := total.worker(w, &rep); err != nil {
			return Report{}, &short, total.cause(err)
		}
	}
	if err := total.whole(); err != nil {
		return Report{}, &short, err
	}
	for w := range short.Workers {
		if !short.Streams() {
			copies := len(short.StagesOf(w))
			if short.PostValidate {
				copies *= 2 // what the weights were before the update that is not validated yet
			}
			rep.Versions = append(rep.Versions, copies)
			continue
		}
		if err := total.versions(w); err != nil {
			return Report{}, &short, err
		}
		rep.Versions = append(rep.Versions, short.copies(w))
	}
	return rep, &short, replay(&short)
}

// prologueRepeats is how many repetitions of the body have as many micro-batches as the prologue.
func (p *Program) prologueRepeats() int {
	n := int32(0)
	for _, list := range p.Prologue {
		for _, in := range list {
			if in.Kind == F {
				n = max(n, in.Micro+1)
			}
		}
	}
	return (int(n) + p.MicroBatches - 1) / p.MicroBatches
}

// Validate refuses what makes no sense instruction by instruction: counts and ids out of
// range, instructions on a worker that does not hold their stage. It is the part of Check
// that costs one look at each instruction; what it passes cannot make a Machine panic, but may block.
func (p *Program) Validate() error {
	fail := func(format string, args ...any) error {
		return &CheckError{Program: p.Name, Worker: -1, Position: -1, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case p.Workers < 1:
		return fail("it has %d workers; it needs one at least", p.Workers)
	case p.Stages < 1 || p.Stages > MaxStage:
		return fail("it has %d stages; it can have 1 to %d", p.Stages, MaxStage)
	case len(p.Placement) < 1 || len(p.Placement) > MaxPipeline:
		return fail("it places %d pipelines; it can have 1 to %d", len(p.Placement), MaxPipeline)
	case p.MicroBatches < 1 || p.Repeat < 0 || int64(p.MicroBatches)*int64(max(p.Repeat, 1)) > MaxMicro:
		return fail("%d micro-batches repeated %d times; there can be 1 to %d in all", p.MicroBatches, p.Repeat, MaxMicro)
	case p.Period < 1:
		return fail("its period is %d minibatches; it must be 1 at least", p.Period)
	case len(p.Recompute) != 0 && len(p.Recompute) != p.Stages:
		return fail("%d recompute settings for %d stages", len(p.Recompute), p.Stages)
	case !p.Weights.known():
		return fail("weight policy %q; there are %q", p.Weights, Policies())
	case p.DeferUpdates && (p.Weights != DoubleBuffered || p.oneReplica()):
		return fail("its updates are put off until a forward needs them: that is for weights 2bw and stages of several replicas")
	case p.PostValidate && (p.Weights != Sync || !p.Clip || p.Period != 1):
		return fail("its updates are validated later: that is for synchronous weights with a gradient norm, one step a repetition")
	case p.Replication != Split && p.Replication != RoundRobin:
		return fail("replication %q; it is %q or %q", p.Replication, Split, RoundRobin)
	}
	for pl, stages := range p.Placement {
		if len(stages) != p.Stages {
			return fail("pipeline %d places %d of %d stages", pl, len(stages), p.Stages)
		}
		for s, on := range stages {
			if len(on) == 0 || len(on) > MaxReplica {
				return fail("stage %d of pipeline %d is on %d workers; it needs 1 to %d", s, pl, len(on), MaxReplica)
			}
			for i, w := range on {
				if w < 0 || w >= p.Workers {
					return fail("stage %d of pipeline %d is on worker %d; workers are 0 to %d", s, pl, w, p.Workers-1)
				}
				if slices.Contains(on[:i], w) {
					return fail("stage %d of pipeline %d is on worker %d twice", s, pl, w)
				}
			}
		}
	}
	if err := p.checkElastic(); err != nil {
		return fail("%v", err)
	}
	for k, part := range []Part{p.Prologue, p.Body, p.Epilogue} {
		if len(part) > p.Workers {
			return fail("its %s has %d lists for %d workers", parts[k], len(part), p.Workers)
		}
		for w, list := range part {
			for i, in := range list {
				if err := checkFields(p, w, in); err != nil {
					return &CheckError{Program: p.Name, Worker: w, Position: i, Instruction: in, Why: err.Error(), part: k, at: i, written: in}
				}
			}
		}
	}
	return nil
}

func checkFields(p *Program, w int, in Instruction) error {
	if in.Kind == DR {
		return nil
	}
	if in.Kind < F || in.Kind > PV {
		return fmt.Errorf("there is no such kind")
	}
	if int(in.Pipeline) < 0 || int(in.Pipeline) >= len(p.Placement) {
		return fmt.Errorf("there are %d pipelines, counted from 0", len(p.Placement))
	}
	if in.Stage < 0 || int(in.Stage) >= p.Stages {
		return fmt.Errorf("stages are 0 to %d", p.Stages-1)
	}
	if in.Kind != U && in.Kind != CK && in.Kind != EV && in.Kind != SF && in.Kind != RF && p.IsReference(int(in.Pipeline)) {
		return fmt.Errorf("pipeline %d is the reference, which does not train", in.Pipeline)
	}
	on := p.Placement[in.Pipeline][in.Stage]
	if in.Replica < 0 || int(in.Replica) >= len(on) {
		return fmt.Errorf("stage %d has %d replicas, counted from 0", in.Stage, len(on))
	}
	if on[in.Replica] != w {
		return fmt.Errorf("replica %d of stage %d is on worker %d, not here", in.Replica, in.Stage, on[in.Replica])
	}
	switch in.Kind {
	case F, B, I, W, EV, SF, RF, SB, RB:
		if n := len(on); p.Replication == RoundRobin && n > 1 && p.replicaOf(in.Micro, n) != int(in.Replica) {
			return fmt.Errorf("under round robin this micro-batch belongs to replica %d", p.replicaOf(in.Micro, n))
		}
	}
	return nil
}

// replay runs the Machine with transfers that take no time. What is possible at all
// happens: a Program whose lists end here cannot deadlock at any speed, because a
// worker's next instruction waits for messages and never for the absence of one.
func replay(p *Program) error {
	m, err := NewMachine(p, 0)
	if err != nil {
		return err
	}
	joined := map[Instruction]int{}
	queue := make([]int, p.Workers)
	for w := range queue {
		queue[w] = w
	}
	for len(queue) > 0 {
		w := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for m.Poll(w).Ready() {
			in, _ := m.Head(w)
			m.Start(w)
			queue = append(queue, m.End(w)...)
			switch in.Kind {
			case SF, SB:
				for _, to := range p.Receivers(in) {
					queue = append(queue, m.Arrive(to, in, w)...)
				}
			case AR, TG, GN:
				members, workers := p.Group(in)
				joined[members[0]]++
				if joined[members[0]] == len(members) {
					for i, member := range members {
						queue = append(queue, m.Arrive(workers[i], member, w)...)
					}
				}
			}
		}
	}
	if waits := m.Waits(); len(waits) > 0 {
		why := "it would block for ever"
		if chain, closed := Chain(p, waits); closed {
			why += ": " + circle(chain)
		}
		return &CheckError{Program: p.Name, Worker: -1, Position: -1, Why: why, Waits: waits}
	}
	if w, in, found := m.Left(); found {
		return &CheckError{Program: p.Name, Worker: w, Position: -1, Why: fmt.Sprintf("%v is sent to it and never received", in)}
	}
	return nil
}
