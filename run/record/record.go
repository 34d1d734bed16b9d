package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
)

// Event is one instruction on one worker, before it becomes text.
type Event struct {
	Worker            int
	In                schedule.Instruction // with ids that count over the whole training
	Step              int
	Outside           bool // of no step: evaluation, checkpoint; step is then the last one done
	Ready, Start, End time.Duration
	Bytes             int64
	Blocker           machine.Need
}

// sample is what a worker held at a moment.
type sample struct {
	worker int
	at     time.Duration
	bytes  int64
}

// stepRecord is what happened in one step.
type stepRecord struct {
	events     []Event
	memory     []sample
	busy       map[int]time.Duration // by worker
	start, end time.Duration
	begun      bool
	losses     map[int]float64
	norm       float64
	updates    int
	applied    *Applied
	seen       []Seen
}

// Applied is when an update of a server was made, and what it went by: the number of it among all of the training, and
// how many there had been in the weights that its gradients were computed with.
type Applied struct{ At, Version int }

// Seen is which reference beside its pipelines an update of one of them saw: that behind Version updates of the
// training.
type Seen struct{ Stage, Pipeline, Version int }

// Recorder keeps what the Timeline of one process's workers is made of. The caller guards it.
type Recorder struct {
	keep int // last steps kept in full
	want func(step int) bool

	open  map[int]*stepRecord // steps under way
	kept  map[int]*stepRecord // finished steps kept in full
	order []int               // of those in kept that are there only because they are recent
	gone  int                 // the greatest step that was kept and is no more; -1: none
	other stepRecord          // what belongs to no step: evaluation, checkpoints
}

// New makes a Recorder that keeps the last steps in full, and those that are wanted.
func New(keep int, want func(int) bool) *Recorder {
	return &Recorder{keep: max(keep, 1), want: want, gone: -1,
		open: map[int]*stepRecord{}, kept: map[int]*stepRecord{}}
}

func (r *Recorder) step(n int) *stepRecord {
	s := r.open[n]
	if s == nil {
		if s = r.kept[n]; s == nil { // kept: a transfer was noted behind the step's end
			s = &stepRecord{busy: map[int]time.Duration{}, losses: map[int]float64{}}
			r.open[n] = s
		}
	}
	return s
}

// Add notes what a worker has executed.
func (r *Recorder) Add(e Event) {
	if e.Outside {
		r.other.events = append(r.other.events, e)
		return
	}
	if e.In.Kind.IsIssued() && e.Step <= r.gone && r.open[e.Step] == nil && r.kept[e.Step] == nil {
		return // it ended so late that nobody asks for it; or its step begins behind later ones, with a message
	}
	s := r.step(e.Step)
	s.events = append(s.events, e)
	if !e.In.Kind.IsCompute() {
		return
	}
	s.busy[e.Worker] += e.End - e.Start
	if !s.begun || e.Start < s.start {
		s.begun, s.start = true, e.Start
	}
	s.end = max(s.end, e.End)
}

// Sample notes what a worker held at most while it did e, from its start on, and what when e had ended.
func (r *Recorder) Sample(e Event, most, live int64) {
	s := &r.other
	if !e.Outside {
		s = r.step(e.Step)
	}
	s.memory = append(s.memory, sample{e.Worker, e.Start, most}, sample{e.Worker, e.End, live})
}

// Loss notes what a micro-batch, or a replica's slice of it, adds to the loss of a step. Where a step is
// begun anew the last one counts.
func (r *Recorder) Loss(step, index int, weighted float64) {
	r.step(step).losses[index] = weighted
}

// Norm notes the norm of a step's gradients, which all stages that have one find alike.
func (r *Recorder) Norm(step int, norm float64) { r.step(step).norm = norm }

// Part is a process's part of a step, complete once the process's last update of it has ended.
type Part struct {
	Step       int
	Start, End time.Duration
	Busy       map[int]time.Duration // by worker
	Losses     map[int]float64       // by index
	Norm       float64               // of the gradients; 0: nobody needs it
	Applied    *Applied              // of a server here
	Seen       []Seen                // of stages here
}

// Applied notes the update of a step by a server.
func (r *Recorder) Applied(step int, a Applied) { r.step(step).applied = &a }

// Saw notes which reference an update of a step saw.
func (r *Recorder) Saw(step int, s Seen) {
	of := r.step(step)
	of.seen = append(of.seen, s)
}

// Updated counts what settles a step; the last of so many that do makes the process's part of it whole.
func (r *Recorder) Updated(step, of int) (Part, bool) {
	s := r.step(step)
	s.updates++
	if s.updates < of {
		return Part{}, false
	}
	delete(r.open, step)
	r.kept[step] = s
	if r.want == nil || !r.want(step) {
		r.order = append(r.order, step)
	}
	for len(r.order) > r.keep {
		r.gone = max(r.gone, r.order[0])
		delete(r.kept, r.gone)
		r.order = r.order[1:]
	}
	if n := len(r.other.events); n > maxOutside {
		r.other.events = slices.Delete(r.other.events, 0, n-maxOutside)
	}
	if n := len(r.other.memory); n > maxOutside {
		r.other.memory = slices.Delete(r.other.memory, 0, n-maxOutside)
	}
	return Part{Step: step, Start: s.start, End: s.end, Busy: s.busy, Losses: s.losses, Norm: s.norm,
		Applied: s.applied, Seen: s.seen}, true
}

// Excerpt is what there is of some steps while the run goes on. It may be read while the Recorder takes more.
type Excerpt []stepRecord

// Excerpt is the record of a completed step, and with around of all others; false where it is no longer kept.
func (r *Recorder) Excerpt(step int, around bool) (Excerpt, bool) {
	s := r.kept[step]
	if s == nil {
		return nil, false
	}
	if !around {
		return Excerpt{*s}, true
	}
	var all Excerpt
	for _, n := range r.known() {
		all = append(all, *r.step(n))
	}
	return all, true
}

// Rows is how many events it has, and samples of memory.
func (x Excerpt) Rows() (events, samples int) {
	for _, s := range x {
		events, samples = events+len(s.events), samples+len(s.memory)
	}
	return events, samples
}

// Fill writes events and memory into a Timeline.
func (x Excerpt) Fill(t *trace.Timeline) {
	for _, s := range x {
		for _, e := range s.events {
			t.Events = append(t.Events, e.text())
		}
		for _, m := range s.memory {
			t.Memory = append(t.Memory, trace.MemorySample{Worker: m.worker, AtS: m.at.Seconds(), Bytes: m.bytes})
		}
	}
	slices.SortStableFunc(t.Events, func(a, b trace.Event) int { return cmp.Compare(a.StartS, b.StartS) })
	slices.SortStableFunc(t.Memory, func(a, b trace.MemorySample) int { return cmp.Compare(a.AtS, b.AtS) })
}

// known is the steps that there is something of, in order.
func (r *Recorder) known() (steps []int) {
	for n := range r.kept {
		steps = append(steps, n)
	}
	for n := range r.open {
		steps = append(steps, n)
	}
	slices.Sort(steps)
	return steps
}

// maxOutside bounds the events that are kept of evaluations and checkpoints.
const maxOutside = 4096

// Fill writes events and memory into a Timeline.
func (r *Recorder) Fill(t *trace.Timeline) {
	all := Excerpt{r.other}
	for _, n := range r.known() {
		all = append(all, *r.step(n))
	}
	all.Fill(t)
}

func (e Event) text() trace.Event {
	return trace.Event{
		Worker: e.Worker, Lane: e.In.Kind.Lane(), Instruction: e.In.String(), Kind: e.In.Kind.String(), Step: e.Step,
		ReadyS: e.Ready.Seconds(), StartS: e.Start.Seconds(), EndS: e.End.Seconds(), Bytes: e.Bytes,
		BlockedBy: e.Blocker.Blocker(),
	}
}
