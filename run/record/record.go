package record

import (
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
)

// event is one instruction on one worker, before it becomes text.
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
	busy       time.Duration   // summed over workers
	busyOf     []time.Duration // by worker
	start, end time.Duration
	begun      bool
	losses     []float64 // by micro-batch, of its slices by replica
	updates    int
}

// recorder keeps what a Timeline is made of: all of it for the last steps and those asked
// for, sums and marks for every step. The caller guards it.
type Recorder struct {
	keep    int // last steps kept in full
	want    func(step int) bool
	slices  int // losses in a step: micro-batches times replicas of the last stage
	last    int // replicas of the last stage
	updates int // that make a step whole

	open     map[int]*stepRecord // steps under way
	kept     map[int]*stepRecord // finished steps kept in full
	order    []int               // of those in kept that are there only because they are recent
	marks    []trace.StepMark
	computed []trace.Computed
	losses   []trace.Loss
	BusyAll  time.Duration
	TookAll  time.Duration // of all steps, what two have in common counted once
	ended    time.Duration // when the last step that is whole ended
	other    stepRecord    // what belongs to no step: evaluation, checkpoints
}

func New(keep int, want func(int) bool, micros, replicas, updates int) *Recorder {
	return &Recorder{keep: max(keep, 1), want: want, slices: micros * replicas, last: replicas, updates: updates, open: map[int]*stepRecord{}, kept: map[int]*stepRecord{}}
}

func (r *Recorder) step(n int) *stepRecord {
	s := r.open[n]
	if s == nil {
		if s = r.kept[n]; s == nil { // kept: a transfer was noted behind the step's end
			s = &stepRecord{losses: make([]float64, r.slices)}
			r.open[n] = s
		}
	}
	return s
}

func (r *Recorder) Add(e Event) {
	if e.Outside {
		r.other.events = append(r.other.events, e)
		return
	}
	s := r.step(e.Step)
	s.events = append(s.events, e)
	if !e.In.Kind.IsCompute() {
		return
	}
	s.busy += e.End - e.Start
	for len(s.busyOf) <= e.Worker {
		s.busyOf = append(s.busyOf, 0)
	}
	s.busyOf[e.Worker] += e.End - e.Start
	if !s.begun || e.Start < s.start {
		s.begun, s.start = true, e.Start
	}
	s.end = max(s.end, e.End)
}

// sample notes what a worker held when e had ended.
func (r *Recorder) Sample(e Event, bytes int64) {
	s := &r.other
	if !e.Outside {
		s = r.step(e.Step)
	}
	s.memory = append(s.memory, sample{e.Worker, e.End, bytes})
}

// loss notes what a replica of the last stage made of a micro-batch, or of its slice.
func (r *Recorder) Loss(step, micro, replica int, weighted float64) {
	r.step(step).losses[micro*r.last+replica] = weighted
}

// finished is what is known of a step once its last update has ended.
type Finished struct {
	Step int
	Loss float64
	Took time.Duration
	Busy time.Duration
}

// updated counts an update; the last one of a step makes it whole.
func (r *Recorder) Updated(step int) (Finished, bool) {
	s := r.step(step)
	s.updates++
	if s.updates < r.updates {
		return Finished{}, false
	}
	loss := 0.0
	for _, l := range s.losses {
		loss += l
	}
	delete(r.open, step)
	r.marks = append(r.marks, trace.StepMark{Step: step, StartS: s.start.Seconds(), EndS: s.end.Seconds()})
	r.computed = append(r.computed, s.computed(step))
	r.losses = append(r.losses, trace.Loss{Step: step, Value: loss})
	r.BusyAll += s.busy
	took := s.end - max(s.start, r.ended) // steps of a stream overlap
	r.TookAll += took
	r.ended = max(r.ended, s.end)
	r.kept[step] = s
	if r.want == nil || !r.want(step) {
		r.order = append(r.order, step)
	}
	for len(r.order) > r.keep {
		delete(r.kept, r.order[0])
		r.order = r.order[1:]
	}
	if n := len(r.other.events); n > maxOutside {
		r.other.events = slices.Delete(r.other.events, 0, n-maxOutside)
	}
	if n := len(r.other.memory); n > maxOutside {
		r.other.memory = slices.Delete(r.other.memory, 0, n-maxOutside)
	}
	return Finished{Step: step, Loss: loss, Took: took, Busy: s.busy}, true
}

// computed is how long each worker computed in the step, as far as the last that did.
func (s *stepRecord) computed(step int) trace.Computed {
	c := trace.Computed{Step: step}
	for _, b := range s.busyOf {
		c.BusyS = append(c.BusyS, b.Seconds())
	}
	return c
}

// maxOutside bounds what is kept of evaluations and checkpoints.
const maxOutside = 4096

// fill writes the record into a Timeline.
func (r *Recorder) Fill(t *trace.Timeline) {
	var steps []int
	for n := range r.kept {
		steps = append(steps, n)
	}
	for n := range r.open {
		steps = append(steps, n)
	}
	slices.Sort(steps)
	take := func(s *stepRecord) {
		for _, e := range s.events {
			t.Events = append(t.Events, e.text())
		}
		for _, m := range s.memory {
			t.Memory = append(t.Memory, trace.MemorySample{Worker: m.worker, AtS: m.at.Seconds(), Bytes: m.bytes})
		}
	}
	take(&r.other)
	for _, n := range steps {
		take(r.step(n))
	}
	slices.SortStableFunc(t.Events, func(a, b trace.Event) int { return compareTimes(a.StartS, b.StartS) })
	slices.SortStableFunc(t.Memory, func(a, b trace.MemorySample) int { return compareTimes(a.AtS, b.AtS) })
	t.Steps = slices.Clone(r.marks)
	slices.SortStableFunc(t.Steps, func(a, b trace.StepMark) int { return a.Step - b.Step })
	for _, c := range r.computed {
		all := make([]float64, t.Workers)
		copy(all, c.BusyS)
		t.Computed = append(t.Computed, trace.Computed{Step: c.Step, BusyS: all})
	}
	slices.SortStableFunc(t.Computed, func(a, b trace.Computed) int { return a.Step - b.Step })
	for _, l := range r.losses {
		if !math.IsNaN(l.Value) && !math.IsInf(l.Value, 0) {
			t.Losses = append(t.Losses, l)
		}
	}
}

func compareTimes(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (e Event) text() trace.Event {
	return trace.Event{
		Worker: e.Worker, Lane: e.In.Kind.Lane(), Instruction: e.In.String(), Kind: e.In.Kind.String(), Step: e.Step,
		ReadyS: e.Ready.Seconds(), StartS: e.Start.Seconds(), EndS: e.End.Seconds(), Bytes: e.Bytes, BlockedBy: e.Blocker.Blocker(),
	}
}
