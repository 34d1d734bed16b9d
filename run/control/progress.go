package control

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/trace"
)

// Progress collects the Steps of a run. Its times are on the leader's clock.
type Progress struct {
	slices int     // number of losses in each step
	of     [][]int // by process: its workers
	parts  int     // number of processes that have workers
	open   map[int]*whole
	ended  float64 // latest end of a complete step

	partsOf func(step int) int    // how many processes have a part of a step, if not all have one (Expect); nil means all
	next    int                   // with Expect: the next step to report as complete
	round   []float64             // end times of the last steps, one for each worker that trains
	begun   float64               // earliest start of a step since Expect
	held    map[int]*whole        // complete steps that cannot be reported until an earlier step is complete
	last    []Did                 // by worker: the last reported values
	applied map[int]trace.Applied // by the update's number in the training: the step that made it
	seen    []trace.Seen          // in the order of arrival

	marks    []trace.StepMark
	computed []trace.Computed
	losses   []trace.Loss

	PeakBytes []int64 // by worker: the last reported values
	BusyS     float64 // compute time of all workers and steps
	TookS     float64 // time of all steps, without counting overlaps twice
}

// whole is a step that is complete once all processes that take part in it have sent their parts.
type whole struct {
	mark    trace.StepMark
	workers []Did
	norm    float64
	losses  []float64
	said    []bool // by process: it has sent its part
	parts   int
}

// Finished has the values of a complete step.
type Finished struct {
	Step    int
	Loss    float64
	Norm    float64 // norm of the gradients; 0 if not needed
	TookS   float64
	BusyS   float64
	Workers []Did
}

// NewProgress returns the Progress of a run with these workers by process and this number of losses per step.
func NewProgress(workers [][]int, slices int) *Progress {
	n, parts := 0, 0
	for _, of := range workers {
		if n += len(of); len(of) > 0 {
			parts++
		}
	}
	return &Progress{slices: slices, of: workers, parts: parts, open: map[int]*whole{}, PeakBytes: make([]int64, n),
		held: map[int]*whole{}, last: make([]Did, n), applied: map[int]trace.Applied{}}
}

// Expect announces a Program of `trainers` workers whose steps may end in any order, starting with step `from`. `parts`
// returns how many processes have a part of a step. After Expect, Next returns the steps in their order. The time of a
// step is then an average over a round, which is as many steps as there are trainers.
func (p *Progress) Expect(from, trainers int, parts func(step int) int) {
	p.next, p.partsOf, p.begun = from, parts, math.Inf(1)
	p.round = slices.Repeat([]float64{math.Inf(-1)}, trainers)
}

// Next returns the step after the last reported one, if it is complete already.
func (p *Progress) Next() (Finished, bool) {
	s := p.held[p.next]
	if s == nil {
		return Finished{}, false
	}
	delete(p.held, p.next)
	p.next++
	return p.finish(s), true
}

// Peaks records the peak bytes of a process's workers.
func (p *Progress) Peaks(process int, bytes []int64) error {
	workers := p.of[process]
	if len(bytes) != len(workers) {
		return fmt.Errorf("control: process %d says what %d workers have held; it has %d", process, len(bytes), len(workers))
	}
	for i, w := range workers {
		p.PeakBytes[w] = bytes[i]
	}
	return nil
}

// Fill writes steps, losses, peaks and the records of updates into a Timeline.
func (p *Progress) Fill(t *trace.Timeline) {
	t.Steps, t.Computed, t.Losses = slices.Clone(p.marks), slices.Clone(p.computed), slices.Clone(p.losses)
	t.PeakBytes, t.Applied = slices.Clone(p.PeakBytes), nil
	for _, at := range slices.Sorted(maps.Keys(p.applied)) {
		t.Applied = append(t.Applied, p.applied[at])
	}
	t.Seen = slices.Clone(p.seen)
	slices.SortFunc(t.Seen, func(a, b trace.Seen) int {
		return cmp.Or(a.Step-b.Step, a.Stage-b.Stage, a.Pipeline-b.Pipeline)
	})
}

// Mark returns the mark of a complete step, if it is one of the last 64.
func (p *Progress) Mark(step int) (trace.StepMark, bool) {
	last := p.marks[max(0, len(p.marks)-64):]
	i := slices.IndexFunc(last, func(m trace.StepMark) bool { return m.Step == step })
	if i < 0 {
		return trace.StepMark{}, false
	}
	return last[i], true
}

// Add adds a process's part of a step. `shiftS` is what to add to the process's clock to get the leader's. The last
// part completes the step, and Add then returns it. After Expect, Add instead returns the step that Next returns, if
// any.
func (p *Progress) Add(process int, part Step, shiftS float64) (Finished, bool, error) {
	workers := p.of[process]
	if n := len(part.Workers); n != len(workers) {
		return Finished{}, false, fmt.Errorf("control: step %d of process %d says what %d workers did; it has %d",
			trace.StepNumber(part.Step), process, n, len(workers))
	}
	for _, l := range part.Losses {
		if l.Index < 0 || l.Index >= p.slices {
			return Finished{}, false, fmt.Errorf("control: step %d of process %d has loss %d; there are %d",
				trace.StepNumber(part.Step), process, l.Index, p.slices)
		}
	}
	s := p.open[part.Step]
	if s == nil {
		s = &whole{mark: trace.StepMark{Step: part.Step, StartS: part.StartS + shiftS},
			workers: make([]Did, len(p.PeakBytes)), losses: make([]float64, p.slices), said: make([]bool, len(p.of))}
		p.open[part.Step] = s
	}
	if s.said[process] {
		return Finished{}, false, fmt.Errorf("control: process %d has said before that its part of step %d stands", process,
			trace.StepNumber(part.Step))
	}
	s.said[process] = true
	s.mark.StartS, s.mark.EndS = min(s.mark.StartS, part.StartS+shiftS), max(s.mark.EndS, part.EndS+shiftS)
	for i, w := range workers {
		s.workers[w], p.PeakBytes[w], p.last[w] = part.Workers[i], part.Workers[i].PeakBytes, part.Workers[i]
	}
	if a := part.Applied; a != nil {
		p.applied[a.At] = trace.Applied{Step: part.Step, Version: a.Version}
	}
	for _, seen := range part.Seen {
		p.seen = append(p.seen, trace.Seen{Step: part.Step, Stage: seen.Stage, Pipeline: seen.Pipeline,
			Version: seen.Version})
	}
	s.norm = max(s.norm, part.Norm)
	for _, l := range part.Losses {
		s.losses[l.Index] = l.Value
	}
	all := p.parts
	if p.partsOf != nil {
		all = p.partsOf(part.Step)
	}
	if s.parts++; s.parts < all {
		return Finished{}, false, nil
	}
	delete(p.open, part.Step)
	if p.partsOf == nil {
		return p.finish(s), true, nil
	}
	p.held[part.Step] = s
	f, whole := p.Next()
	return f, whole, nil
}

// inRound returns the average time of a step for workers that go at their own pace. A round is the last N steps, where
// N is the number of workers that train. The average is the time from the end of the round before to the end of this
// one, divided by N. If there is no full round before, the time counts from the start of the first step.
func (p *Progress) inRound(s trace.StepMark) float64 {
	p.begun = min(p.begun, s.StartS)
	last, n := max(s.EndS, p.round[len(p.round)-1]), float64(len(p.round))
	since := max(p.begun, p.round[0])
	p.round = append(p.round[1:], last)
	return (last - since) / n
}

// finish computes the values of a complete step. A worker without a part in the step keeps its last reported values,
// with no compute time.
func (p *Progress) finish(s *whole) Finished {
	for process, workers := range p.of {
		for _, w := range workers {
			if !s.said[process] {
				s.workers[w] = p.last[w]
				s.workers[w].BusyS = 0
			}
		}
	}
	f := Finished{Step: s.mark.Step, Norm: s.norm, Workers: s.workers}
	for _, l := range s.losses { // in ascending order, whichever process sent them
		f.Loss += l
	}
	c := trace.Computed{Step: f.Step}
	for _, w := range s.workers {
		f.BusyS += w.BusyS
		c.BusyS = append(c.BusyS, w.BusyS)
	}
	f.TookS = s.mark.EndS - s.mark.StartS
	if len(p.marks) > 0 && s.mark.Follows(p.ended) { // as in trace.Timeline.Took
		f.TookS = max(0, s.mark.EndS-p.ended) // steps of a stream overlap, and may end together
	}
	p.ended = max(p.ended, s.mark.EndS)
	if p.partsOf != nil {
		f.TookS = p.inRound(s.mark)
	}
	p.BusyS, p.TookS = p.BusyS+f.BusyS, p.TookS+f.TookS
	p.marks = append(p.marks, s.mark)
	p.computed = append(p.computed, c)
	p.losses = append(p.losses, trace.Loss{Step: f.Step, Value: f.Loss})
	return f
}
