package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// account is the memory of one worker.
type account struct {
	bytes, peak     int64
	gradients       int64 // bytes of gradients that exist now
	micros, mostMic int   // micro-batches between forward and backward
}

func (a *account) hold(n int64) {
	a.bytes += n
	a.peak = max(a.peak, a.bytes)
}

// touch notes that n more bytes are held for a moment.
func (a *account) touch(n int64) { a.peak = max(a.peak, a.bytes+n) }

// gradients come into being with the first backward of a step and go with its update.
func (s *state) gradients(w int, c *StageCost) {
	m := &s.workers[w].memory
	if m.gradients == 0 {
		m.gradients = c.ParameterBytes
		m.hold(c.ParameterBytes)
	}
}

// release changes what a worker holds once an instruction has ended.
func (s *state) release(w int, in schedule.Instruction) {
	m := &s.workers[w].memory
	c := s.costs.of(int(in.Stage), int(in.Replica))
	switch in.Kind {
	case schedule.F:
		m.micros++
		m.mostMic = max(m.mostMic, m.micros)
		m.hold(c.SavedBytes)
	case schedule.B, schedule.W:
		m.micros--
		m.hold(-c.SavedBytes)
		if in.Stage > 0 {
			m.hold(-c.InputBytes)
		}
	case schedule.RF:
		m.hold(c.InputBytes)
	case schedule.U:
		m.hold(-m.gradients)
		m.gradients = 0
		s.mark(int(in.Micro))
	default:
		return
	}
	s.sample(w)
}

func (s *state) sample(w int) {
	if s.o.Record {
		s.tl.Memory = append(s.tl.Memory, trace.MemorySample{Worker: w, AtS: s.now, Bytes: s.workers[w].memory.bytes})
	}
}

// mark notes an update of a step; the last one ends it.
func (s *state) mark(step int) {
	for len(s.steps) <= step {
		start := 0.0
		if n := len(s.steps); n > 0 {
			start = s.steps[n-1].EndS
		}
		s.steps = append(s.steps, trace.StepMark{Step: len(s.steps), StartS: start})
	}
	s.steps[step].EndS = max(s.steps[step].EndS, s.now)
	if step+1 < len(s.steps) {
		s.steps[step+1].StartS = s.steps[step].EndS
	}
}

func (s *state) record(w int, in schedule.Instruction, lane trace.Lane, end float64, bytes int64) {
	if !s.o.Record {
		return
	}
	me := &s.workers[w]
	if in.Kind == schedule.AR || in.Kind == schedule.TG || in.Kind == schedule.GN {
		s.recordSpan(w, in, lane, end, end, end, bytes, "")
		return
	}
	blocked := me.blockedBy
	if me.started <= me.reached {
		blocked = ""
	}
	s.recordSpan(w, in, lane, me.reached, me.started, end, bytes, blocked)
}

func (s *state) recordSpan(w int, in schedule.Instruction, lane trace.Lane, ready, start, end float64, bytes int64, blocked string) {
	step := int(in.Micro)
	switch in.Kind {
	case schedule.AR, schedule.TG, schedule.GN, schedule.U, schedule.CK, schedule.DR:
	default:
		step /= s.per
	}
	s.tl.Events = append(s.tl.Events, trace.Event{
		Worker: w, Lane: lane, Instruction: in.String(), Kind: in.Kind.String(), Step: step,
		ReadyS: ready, StartS: start, EndS: end, Bytes: bytes, BlockedBy: blocked,
	})
}

func (s *state) timeline() *trace.Timeline {
	s.tl.Steps = s.steps
	for _, w := range s.workers {
		s.tl.PeakBytes = append(s.tl.PeakBytes, w.memory.peak)
		s.tl.PeakActivations = append(s.tl.PeakActivations, w.memory.mostMic)
	}
	slices.SortStableFunc(s.tl.Events, func(a, b trace.Event) int {
		switch {
		case a.StartS < b.StartS:
			return -1
		case a.StartS > b.StartS:
			return 1
		}
		return a.Worker - b.Worker
	})
	return &s.tl
}

func (s *state) summary() Summary {
	sum := Summary{EndS: s.now, StepS: s.now, Instructions: s.count}
	if n := len(s.steps); n > 1 {
		var took []float64
		for _, m := range s.steps[1:] {
			took = append(took, m.EndS-m.StartS)
		}
		slices.Sort(took)
		sum.StepS = (took[(len(took)-1)/2] + took[len(took)/2]) / 2
	}
	steps, busy := float64(max(1, len(s.steps))), 0.0
	for _, w := range s.workers {
		sum.BusyS = append(sum.BusyS, w.busy/steps)
		busy += w.busy / steps
		sum.PeakBytes = append(sum.PeakBytes, w.memory.peak)
		sum.PeakActivations = append(sum.PeakActivations, w.memory.mostMic)
	}
	if sum.StepS > 0 {
		sum.Bubble = 1 - busy/(float64(len(s.workers))*sum.StepS)
	}
	return sum
}
