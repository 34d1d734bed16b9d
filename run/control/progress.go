package control

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/trace"
)

// Progress is what a run's Steps say of it. Its times are on the leader's clock.
type Progress struct {
	slices int     // losses in a step
	of     [][]int // by process: its workers
	parts  int     // of a step: processes that have workers
	open   map[int]*whole
	ended  float64 // when the last step that is whole ended

	marks    []trace.StepMark
	computed []trace.Computed
	losses   []trace.Loss

	PeakBytes []int64 // by worker, as last heard
	BusyS     float64 // computing, of all workers and steps
	TookS     float64 // of all steps, what two have in common counted once
}

// whole is a step of which not all parts have come.
type whole struct {
	mark    trace.StepMark
	workers []Did
	norm    float64
	losses  []float64
	said    []bool // by process
	parts   int
}

// Finished is what is known of a step once it is whole.
type Finished struct {
	Step    int
	Loss    float64
	Norm    float64 // of the gradients; 0: nobody needs it
	TookS   float64
	BusyS   float64
	Workers []Did
}

// NewProgress is that of a run whose processes have these workers, with so many losses in a step.
func NewProgress(workers [][]int, slices int) *Progress {
	n, parts := 0, 0
	for _, of := range workers {
		if n += len(of); len(of) > 0 {
			parts++
		}
	}
	return &Progress{slices: slices, of: workers, parts: parts, open: map[int]*whole{}, PeakBytes: make([]int64, n)}
}

// Peaks takes the most that a process's workers have held.
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

// Fill writes steps, losses and peaks into a Timeline.
func (p *Progress) Fill(t *trace.Timeline) {
	t.Steps, t.Computed, t.Losses = slices.Clone(p.marks), slices.Clone(p.computed), slices.Clone(p.losses)
	t.PeakBytes = slices.Clone(p.PeakBytes)
}

// Mark is that of a step that is whole, if it is one of the last.
func (p *Progress) Mark(step int) (trace.StepMark, bool) {
	last := p.marks[max(0, len(p.marks)-64):]
	i := slices.IndexFunc(last, func(m trace.StepMark) bool { return m.Step == step })
	if i < 0 {
		return trace.StepMark{}, false
	}
	return last[i], true
}

// Add takes a process's part of a step; shift is what its clock lacks to the leader's. The last part makes
// the step whole.
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
		s.workers[w], p.PeakBytes[w] = part.Workers[i], part.Workers[i].PeakBytes
	}
	s.norm = max(s.norm, part.Norm)
	for _, l := range part.Losses {
		s.losses[l.Index] = l.Value
	}
	if s.parts++; s.parts < p.parts {
		return Finished{}, false, nil
	}
	delete(p.open, part.Step)
	f := Finished{Step: part.Step, Norm: s.norm, Workers: s.workers}
	for _, l := range s.losses { // ascending, whichever process each is of
		f.Loss += l
	}
	c := trace.Computed{Step: part.Step}
	for _, w := range s.workers {
		f.BusyS += w.BusyS
		c.BusyS = append(c.BusyS, w.BusyS)
	}
	f.TookS = s.mark.EndS - max(s.mark.StartS, p.ended) // steps of a stream overlap
	p.ended = max(p.ended, s.mark.EndS)
	p.BusyS, p.TookS = p.BusyS+f.BusyS, p.TookS+f.TookS
	p.marks = append(p.marks, s.mark)
	p.computed = append(p.computed, c)
	p.losses = append(p.losses, trace.Loss{Step: part.Step, Value: f.Loss})
	return f, true, nil
}
