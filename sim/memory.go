package sim

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// account is the memory of one worker.
type account struct {
	bytes, peak     int64
	micros, mostMic int // micro-batches between forward and backward
}

func (a *account) hold(n int64) {
	a.bytes += n
	a.peak = max(a.peak, a.bytes)
}

// touch notes that n more bytes are held for a moment.
func (s *state) touch(w int, n int64) {
	a := &s.workers[w].memory
	a.peak = max(a.peak, a.bytes+n)
	if s.o.Record && n > 0 {
		s.tl.Memory = append(s.tl.Memory, trace.MemorySample{Worker: w, AtS: s.now, Bytes: a.bytes + n})
	}
}

// placeOf numbers the replicas of all stages of all pipelines.
func (s *state) placeOf(in schedule.Instruction) int {
	return s.places[int(in.Pipeline)*s.p.Stages+int(in.Stage)] + int(in.Replica)
}

// backwardStarts notes the peak of a backward: gradients of parameters come into being with
// the first one after an update and go with the update.
func (s *state) backwardStarts(w int, in schedule.Instruction, c *StageCost) {
	if s.gradients[s.placeOf(in)] {
		s.touch(w, c.BackwardPeak)
		return
	}
	s.touch(w, max(c.FirstBackwardPeak, c.BackwardPeak))
}

func (s *state) makeGradients(w int, in schedule.Instruction, c *StageCost) {
	if at := s.placeOf(in); !s.gradients[at] {
		s.gradients[at] = true
		s.workers[w].memory.hold(c.ParameterBytes)
	}
}

// settle changes what a worker holds once an instruction has ended. What crosses a cut is
// the sender's from the computation that made it, and the receiver's from its receive;
// between two stages of one worker it changes hands in place.
func (s *state) settle(w int, in schedule.Instruction) {
	m := &s.workers[w].memory
	c := s.costs.of(int(in.Stage), int(in.Replica))
	switch in.Kind {
	case schedule.F:
		m.micros++
		m.mostMic = max(m.mostMic, m.micros)
		m.hold(c.SavedBytes + c.ActivationBytes)
	case schedule.EV:
		m.hold(c.ActivationBytes)
		m.hold(-c.InputBytes)
	case schedule.B:
		m.micros--
		m.hold(-c.SavedBytes - c.InputBytes - s.received(in))
		s.makeGradients(w, in, c)
		m.hold(c.GradientBytes)
	case schedule.I:
		m.hold(c.GradientBytes)
	case schedule.W:
		m.micros--
		m.hold(-c.SavedBytes - c.InputBytes - s.received(in))
		s.makeGradients(w, in, c)
	case schedule.RF, schedule.RB:
		s.takeOver(w, in, c)
	case schedule.AR, schedule.TG, schedule.GN:
		s.makeGradients(w, in, c) // a replica without a micro-batch contributes zeros
	case schedule.U:
		if at := s.placeOf(in); s.gradients[at] {
			s.gradients[at] = false
			m.hold(-c.ParameterBytes)
		}
	default:
		return
	}
	s.sample(w)
}

// received is the bytes of the gradient that a backward was given: none on the last stage.
func (s *state) received(in schedule.Instruction) int64 {
	if int(in.Stage)+1 >= s.p.Stages {
		return 0
	}
	return s.costs.of(int(in.Stage), int(in.Replica)).ActivationBytes
}

// takeOver moves the charge for received messages from their senders to worker w.
func (s *state) takeOver(w int, in schedule.Instruction, c *StageCost) {
	whole := c.InputBytes
	if in.Kind == schedule.RB {
		whole = s.received(in)
	}
	senders := 0
	s.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		senders++
		s.workers[from].memory.hold(-s.portion(sent, w))
		s.sample(from)
		return true
	})
	if senders > 0 {
		s.workers[w].memory.hold(whole)
	}
}

// portion is the bytes that a send makes for worker to.
func (s *state) portion(send schedule.Instruction, to int) int64 {
	bytes, mine := s.bytesOf(send), int64(0)
	s.p.Recipients(send, func(w, lo, hi, n int) bool {
		if w == to {
			mine = bytes*int64(hi)/int64(n) - bytes*int64(lo)/int64(n)
		}
		return w != to
	})
	return mine
}

func (s *state) sample(w int) {
	if s.o.Record {
		s.tl.Memory = append(s.tl.Memory, trace.MemorySample{Worker: w, AtS: s.now, Bytes: s.workers[w].memory.bytes})
	}
}
