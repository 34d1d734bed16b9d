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
	Outside           bool // an evaluation or a checkpoint; Step is then the last step done
	Ready, Start, End time.Duration
	Bytes             int64
	Blocker           machine.Need
}

// sample is how many bytes a worker held at a moment.
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

// Applied is an update that a server made. At is its number among the training's updates. Version is the number of
// updates in the weights with which its gradients were computed.
type Applied struct{ At, Version int }

// Seen says which reference an update of a pipeline used. Version is the number of updates that this reference had had
// since the beginning of the training.
type Seen struct{ Stage, Pipeline, Version int }

// Recorder keeps the data for the Timeline of one process's workers. The caller guards it with a lock.
type Recorder struct {
	keep int // number of the last steps that are kept in full
	want func(step int) bool
	over spread

	open  map[int]*stepRecord // steps in progress
	kept  map[int]*stepRecord // finished steps kept in full
	order []int               // steps in kept that are there only because they are recent
	gone  int                 // the greatest step that was kept and has been dropped; -1 means none
	other stepRecord          // evaluations and checkpoints, outside of steps
}

// New returns a Recorder that keeps in full the last steps and those that `want` selects. It also keeps up to `moments`
// steps that are spread evenly over the whole run. Each of these is kept with the steps before and after it, whose work
// may overlap with it.
func New(keep int, want func(int) bool, moments int) *Recorder {
	return &Recorder{keep: max(keep, 1), want: want, gone: -1, over: spread{most: moments, stride: 1},
		open: map[int]*stepRecord{}, kept: map[int]*stepRecord{}}
}

func (r *Recorder) step(n int) *stepRecord {
	s := r.open[n]
	if s == nil {
		if s = r.kept[n]; s == nil { // kept: a transfer was recorded after the step's end
			s = &stepRecord{busy: map[int]time.Duration{}, losses: map[int]float64{}}
			r.open[n] = s
		}
	}
	return s
}

// Add records what a worker has executed.
func (r *Recorder) Add(e Event) {
	if e.Outside {
		r.other.events = append(r.other.events, e)
		return
	}
	if r.tooLate(e) {
		return
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

// tooLate reports whether a transfer or collective belongs to a step that is not kept. Either the step was dropped, or
// nothing of it was recorded before a later step was dropped.
func (r *Recorder) tooLate(e Event) bool {
	return e.In.Kind.IsIssued() && e.Step <= r.gone && r.open[e.Step] == nil && r.kept[e.Step] == nil
}

// Sample records the most bytes that a worker held during e, and the bytes that it held when e had ended.
func (r *Recorder) Sample(e Event, most, live int64) {
	s := &r.other
	if !e.Outside {
		if r.tooLate(e) {
			return
		}
		s = r.step(e.Step)
	}
	s.memory = append(s.memory, sample{e.Worker, e.Start, most}, sample{e.Worker, e.End, live})
}

// Loss records what a micro-batch, or a replica's slice of it, adds to the loss of a step. If a step is run again, the
// last value counts.
func (r *Recorder) Loss(step, index int, weighted float64) {
	r.step(step).losses[index] = weighted
}

// Norm records the norm of a step's gradients. All stages that compute the norm get the same value.
func (r *Recorder) Norm(step int, norm float64) { r.step(step).norm = norm }

// Part is a process's part of a step. It is complete once all instructions of the process that settle the step have
// ended.
type Part struct {
	Step       int
	Start, End time.Duration
	Busy       map[int]time.Duration // by worker
	Losses     map[int]float64       // by index of the slice in its step
	Norm       float64               // norm of the gradients; 0 if not needed
	Applied    *Applied              // the update by a server in this process; nil if none
	Seen       []Seen                // the references that updates in this process used
}

// Applied records the update of a step by a server.
func (r *Recorder) Applied(step int, a Applied) { r.step(step).applied = &a }

// Saw records which reference an update of a step used.
func (r *Recorder) Saw(step int, s Seen) {
	of := r.step(step)
	of.seen = append(of.seen, s)
}

// Updated counts an instruction that settles a step. Once `of` such instructions have run, it returns the process's
// complete part of the step, and true.
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
		for _, n := range r.over.add(r.order[0]) {
			r.gone = max(r.gone, n)
			delete(r.kept, n)
		}
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

// Excerpt is the record of some steps during the run. It may be read while the Recorder records more.
type Excerpt []stepRecord

// Excerpt returns the record of a completed step. If `around` is set, it adds the records of all other steps. It
// returns false if the step is no longer kept.
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

// Rows returns the Excerpt's number of events and of memory samples.
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

// known returns the recorded steps in order.
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

// maxOutside bounds the recorded events, and the memory samples, of evaluations and checkpoints.
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
