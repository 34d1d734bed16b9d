package sim

import (
	"slices"

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

// gathered is which gradients of a stage's parameters there are.
type gathered uint8

const (
	none    gathered = iota
	ofWhole          // of the layers without halves: no second half of a backward has run
	ofAll
)

// gradientBytes is their size.
func (c *StageCost) gradientBytes(g gathered) int64 {
	switch g {
	case ofWhole:
		return c.WholeBytes
	case ofAll:
		return c.ParameterBytes
	}
	return 0
}

// inside is the most that an instruction holds for a moment beyond what was held before it. The
// first backward after an update makes the gradients of parameters as it goes.
func (s *state) inside(in schedule.Instruction) int64 {
	c := s.costs.on(s.p, in)
	switch in.Kind {
	case schedule.F:
		return c.ForwardPeak
	case schedule.B:
		if s.gradients[s.placeOf(in)] == ofAll {
			return c.BackwardPeak
		}
		return max(c.FirstBackwardPeak, c.BackwardPeak)
	case schedule.I:
		if s.gradients[s.placeOf(in)] != none {
			return c.InputPeak
		}
		return max(c.FirstInputPeak, c.InputPeak)
	case schedule.W:
		if s.gradients[s.placeOf(in)] == ofAll {
			return c.WeightPeak
		}
		return max(c.FirstWeightPeak, c.WeightPeak)
	case schedule.EV:
		return c.EvaluatePeak
	case schedule.U:
		return c.updatePeak(s.p.UpdateCost(in))
	}
	return 0
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

// makeGradients has those gradients be there that are not yet.
func (s *state) makeGradients(w int, in schedule.Instruction, c *StageCost, g gathered) {
	if at := &s.gradients[s.placeOf(in)]; *at < g {
		s.workers[w].memory.hold(c.gradientBytes(g) - c.gradientBytes(*at))
		*at = g
	}
}

// settle changes what a worker holds once an instruction has ended. What crosses a cut is
// the sender's from the computation that made it, and the receiver's once it has arrived,
// whether or not it has got round to it; between two stages of one worker it changes
// hands in place.
func (s *state) settle(w int, in schedule.Instruction) {
	m := &s.workers[w].memory
	c := s.costs.on(s.p, in)
	s.keepVersion(w, in, c)
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
		s.makeGradients(w, in, c, ofAll)
		m.hold(c.GradientBytes)
	case schedule.I:
		m.hold(c.PendingBytes - c.SavedBytes - c.InputBytes - s.received(in))
		s.makeGradients(w, in, c, ofWhole)
		m.hold(c.GradientBytes)
	case schedule.W:
		m.micros--
		m.hold(-c.PendingBytes)
		s.makeGradients(w, in, c, ofAll)
	case schedule.RF, schedule.RB:
		rounded := s.rounded(in, w, c)
		if rounded == 0 {
			return
		}
		if c.Packed.On { // what has come and what it stands for are there at once
			s.touch(w, c.wholeBytes(s.p, in))
		}
		m.hold(rounded)
	case schedule.RG:
		s.gradients[s.placeOf(in)] = ofAll // which the server holds since they came
	case schedule.RW:
		m.hold(-s.bytesOf(in)) // they are written over the trainer's own
	case schedule.AR, schedule.TG, schedule.GN:
		s.makeGradients(w, in, c, ofAll) // a replica without a micro-batch contributes zeros
		if s.p.Defers() && in.Kind == schedule.AR {
			s.gradients[s.placeOf(in)] = none // they are kept for their update, and the next minibatch makes others
		}
	case schedule.U, schedule.PV:
		cost := s.p.UpdateCost(in)
		switch {
		case cost.SetAside:
			m.hold(-c.ParameterBytes)
		case !cost.KeepsGradients:
			s.freeGradients(w, in, c)
		}
		m.hold(cost.Whole*c.changing() + cost.Models*c.ReferenceBytes - s.seen(w, c))
	default:
		return
	}
	s.sample(w)
}

// handsOut notes what a message of a server's or to it is made of: the trainer's gradients, or a copy of the weights.
func (s *state) handsOut(w int, in schedule.Instruction) {
	switch in.Kind {
	case schedule.SG:
		s.gradients[s.placeOf(in)] = none
	case schedule.SW:
		s.workers[w].memory.hold(s.bytesOf(in))
		s.sample(w)
	}
}

func (s *state) freeGradients(w int, in schedule.Instruction, c *StageCost) {
	at := &s.gradients[s.placeOf(in)]
	s.workers[w].memory.hold(-c.gradientBytes(*at))
	*at = none
}

// received is the bytes of the gradient that a backward was given: none on the last stage.
func (s *state) received(in schedule.Instruction) int64 { return s.costs.on(s.p, in).received(s.p, in) }

func (c *StageCost) received(p *schedule.Program, in schedule.Instruction) int64 {
	if int(in.Stage)+1 >= p.Stages {
		return 0
	}
	return c.ActivationBytes - c.NoGradientBytes
}

// pack has a sender hold what it sends in fewer bits in place of what it has made, and says how long that takes.
func (s *state) pack(w int, in schedule.Instruction) (takesS float64) {
	c := s.costs.on(s.p, in)
	_, takesS, packs := c.Packed.of(in.Kind)
	if !packs {
		return 0
	}
	s.p.Recipients(in, func(_, lo, hi, n int) bool {
		packed, whole := partOf(s.bytesOf(in), lo, hi, n), partOf(c.wholeBytes(s.p, in), lo, hi, n)
		s.touch(w, packed)
		s.workers[w].memory.hold(packed - whole)
		return true
	})
	s.sample(w)
	return takesS
}

// partOf is the bytes of rows lo to hi of n.
func partOf(bytes int64, lo, hi, n int) int64 {
	return bytes*int64(hi)/int64(n) - bytes*int64(lo)/int64(n)
}

// handOver moves the charge for a message that has arrived to its receiver.
func (s *state) handOver(from, to int, sent schedule.Instruction) {
	bytes := s.portion(sent, to)
	s.workers[from].memory.hold(-bytes)
	s.workers[to].memory.hold(bytes)
	s.limit(to, s.receiveOf(sent, to), false)
	s.sample(from)
	s.sample(to)
}

// receiveOf is the instruction by which a worker takes a message.
func (s *state) receiveOf(sent schedule.Instruction, to int) schedule.Instruction {
	receive := sent
	switch sent.Kind {
	case schedule.SF:
		receive.Kind, receive.Stage = schedule.RF, sent.Stage+1
	case schedule.SB:
		receive.Kind, receive.Stage = schedule.RB, sent.Stage-1
	default:
		return s.p.OtherSide(sent)
	}
	receive.Replica = int16(slices.Index(s.p.Placement[receive.Pipeline][receive.Stage], to))
	return receive
}

// rounded is what the input of a receive has more than the messages that make it up: its
// worker's part of a micro-batch may be rounded otherwise than the parts on their way.
func (s *state) rounded(in schedule.Instruction, w int, c *StageCost) int64 {
	whole := c.InputBytes
	if in.Kind == schedule.RB {
		whole = s.received(in)
	}
	arrived, senders := int64(0), 0
	s.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		senders++
		arrived += s.portion(sent, w)
		return true
	})
	if senders == 0 {
		return 0
	}
	return whole - arrived
}

// portion is the bytes that a send makes for worker to, one of those it goes to.
func (s *state) portion(send schedule.Instruction, to int) int64 {
	bytes, mine := s.bytesOf(send), int64(0)
	if s.p.Replication != schedule.Split {
		return bytes
	}
	s.p.Recipients(send, func(w, lo, hi, n int) bool {
		if w == to {
			mine = partOf(bytes, lo, hi, n)
		}
		return w != to
	})
	return mine
}

// limit notes the first instruction that takes a worker beyond its memory.
func (s *state) limit(w int, in schedule.Instruction, throughout bool) {
	if s.over != nil || s.o.MemoryBytes == nil {
		return
	}
	if most := s.o.MemoryBytes(w); most > 0 && s.workers[w].memory.peak > most {
		s.over = &Over{Worker: w, Instruction: in, Throughout: throughout, Bytes: s.workers[w].memory.peak}
	}
}

func (s *state) sample(w int) {
	if s.o.Record {
		s.tl.Memory = append(s.tl.Memory, trace.MemorySample{Worker: w, AtS: s.now, Bytes: s.workers[w].memory.bytes})
	}
}
