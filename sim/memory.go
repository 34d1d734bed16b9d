package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// account is the memory of one worker.
type account struct {
	bytes, peak     int64
	gradients       int64 // the part of bytes that is gradients of parameters
	peakGradients   int64 // gradients at the time of the peak
	micros, mostMic int   // micro-batches between forward and backward: now, and at most
}

func (a *account) hold(n int64) {
	a.bytes += n
	a.touch(0)
}

// touch notes that n more bytes are held for a moment.
func (a *account) touch(n int64) {
	if held := a.bytes + n; held > a.peak {
		a.peak, a.peakGradients = held, a.gradients
	}
}

// holdGradients is hold for gradients of parameters.
func (a *account) holdGradients(n int64) {
	a.gradients += n
	a.hold(n)
}

// held counts the bytes that every worker holds, from the instructions it has carried out and the messages that wait
// for their receive.
type held struct {
	terms     *terms
	journal   *journal
	most      func(worker int) int64         // memory of a worker; 0 or nil means no limit
	accounts  []account                      // by worker
	beside    []besides                      // by worker
	gradients []gathered                     // by place
	copies    []map[schedule.Instruction]int // by worker: changes in the number of weight copies; nil without a stream
	over      *Over                          // the first instruction that exceeded a worker's memory
}

// newHeld returns the state at the start, with the bytes that are held from the start to the end of the run.
func newHeld(t *terms, j *journal, most func(worker int) int64) held {
	p := t.p
	m := held{terms: t, journal: j, most: most, accounts: make([]account, p.Workers), beside: make([]besides, p.Workers),
		gradients: make([]gathered, len(t.prices)), copies: copiesOf(p)}
	for pl, stages := range p.Placement {
		for stage, on := range stages {
			for r, w := range on {
				at := schedule.Instruction{Pipeline: int16(pl), Stage: int32(stage), Replica: int16(r)}
				m.accounts[w].hold(fixedBytes(p, pl, t.of(at)))
			}
		}
	}
	for w := range m.accounts {
		m.sample(w)
		m.limit(w, schedule.Instruction{}, true)
	}
	return m
}

// gathered says which gradients of a stage's parameters exist.
type gathered uint8

const (
	none    gathered = iota
	ofWhole          // only gradients of layers without halves: no second half of a backward has run
	ofAll
)

// gradientBytes returns the size of the gradients that exist according to `g`.
func (c *StageCost) gradientBytes(g gathered) int64 {
	switch g {
	case ofWhole:
		return c.WholeBytes
	case ofAll:
		return c.ParameterBytes
	}
	return 0
}

// inside notes the peak inside an instruction, which comes on top of what was held before it. The first backward after
// an update makes the parameters' gradients while it runs, so it may have another peak.
func (m *held) inside(w int, in schedule.Instruction, c *StageCost) { m.touch(w, m.insideOf(in, c)) }

func (m *held) insideOf(in schedule.Instruction, c *StageCost) int64 {
	switch in.Kind {
	case schedule.F:
		return c.ForwardPeak
	case schedule.B:
		if m.gradients[m.terms.place(in)] == ofAll {
			return c.BackwardPeak
		}
		return max(c.FirstBackwardPeak, c.BackwardPeak)
	case schedule.I:
		if m.gradients[m.terms.place(in)] != none {
			return c.InputPeak
		}
		return max(c.FirstInputPeak, c.InputPeak)
	case schedule.W:
		if m.gradients[m.terms.place(in)] == ofAll {
			return c.WeightPeak
		}
		return max(c.FirstWeightPeak, c.WeightPeak)
	case schedule.EV:
		return c.EvaluatePeak
	case schedule.U:
		return c.updatePeak(m.terms.p.UpdateCost(in))
	}
	return 0
}

// touch notes that n more bytes are held for a moment.
func (m *held) touch(w int, n int64) {
	a := &m.accounts[w]
	a.touch(n)
	if n > 0 {
		m.journal.sample(w, a.bytes+n)
	}
}

// makeGradients adds the gradients that do not exist yet.
func (m *held) makeGradients(w int, in schedule.Instruction, c *StageCost, g gathered) {
	if at := &m.gradients[m.terms.place(in)]; *at < g {
		m.accounts[w].holdGradients(c.gradientBytes(g) - c.gradientBytes(*at))
		*at = g
	}
}

// settle changes what a worker holds after an instruction has ended. A tensor that crosses a cut counts for the sender
// from the computation that makes it. It counts for the receiver from its arrival, even before the receive. In one
// memory (Costs.OneMemory) it counts for the receiver already from its send on. Between two stages of one worker the
// tensor is handed over without a copy.
func (m *held) settle(w int, in schedule.Instruction) {
	a := &m.accounts[w]
	c := m.terms.of(in)
	m.keepVersion(w, in, c)
	switch in.Kind {
	case schedule.F:
		a.micros++
		a.mostMic = max(a.mostMic, a.micros)
		a.hold(c.SavedBytes + c.ActivationBytes)
	case schedule.EV:
		a.hold(c.ActivationBytes)
		a.hold(-c.InputBytes)
	case schedule.B:
		a.micros--
		a.hold(-c.SavedBytes - c.InputBytes - m.terms.received(in))
		m.makeGradients(w, in, c, ofAll)
		a.hold(c.GradientBytes)
	case schedule.I:
		a.hold(c.PendingBytes - c.SavedBytes - c.InputBytes - m.terms.received(in))
		m.makeGradients(w, in, c, ofWhole)
		a.hold(c.GradientBytes)
	case schedule.W:
		a.micros--
		a.hold(-c.PendingBytes)
		m.makeGradients(w, in, c, ofAll)
	case schedule.RF, schedule.RB:
		rounded := m.terms.rounded(in, w, c)
		if rounded == 0 {
			return
		}
		if c.Packed.On { // the packed message and the unpacked tensor exist at the same time
			m.touch(w, c.wholeBytes(m.terms.p, in))
		}
		a.hold(rounded)
	case schedule.RG:
		m.gradients[m.terms.place(in)] = ofAll // the server has held the gradients since they arrived
	case schedule.RW:
		a.hold(-m.terms.bytesOf(in)) // the weights received overwrite the trainer's own
	case schedule.AR, schedule.TG, schedule.GN:
		m.makeGradients(w, in, c, ofAll) // a replica without a micro-batch contributes zeros
		if m.terms.p.Defers() && in.Kind == schedule.AR {
			m.gradients[m.terms.place(in)] = none // the next minibatch makes new gradients; the sum waits for its update
		}
	case schedule.U, schedule.PV:
		cost := m.terms.p.UpdateCost(in)
		switch {
		case cost.SetAside:
			a.hold(-c.ParameterBytes)
		case !cost.KeepsGradients:
			m.freeGradients(w, in, c)
		}
		a.hold(cost.Whole*c.changing() + cost.Models*c.ReferenceBytes - m.seen(w, c))
	default:
		return
	}
	m.sample(w)
}

// handsOut notes the memory of a message between server and trainer. A message of gradients uses the memory that the
// gradients had on the trainer. A message of weights is a copy.
func (m *held) handsOut(w int, in schedule.Instruction) {
	switch in.Kind {
	case schedule.SG:
		m.gradients[m.terms.place(in)] = none
	case schedule.SW:
		m.accounts[w].hold(m.terms.bytesOf(in))
		m.sample(w)
	}
}

func (m *held) freeGradients(w int, in schedule.Instruction, c *StageCost) {
	at := &m.gradients[m.terms.place(in)]
	m.accounts[w].holdGradients(-c.gradientBytes(*at))
	*at = none
}

// received returns the bytes of the gradient that a backward receives; 0 on the last stage.
func (t *terms) received(in schedule.Instruction) int64 { return t.of(in).received(t.p, in) }

func (c *StageCost) received(p *schedule.Program, in schedule.Instruction) int64 {
	if int(in.Stage)+1 >= p.Stages {
		return 0
	}
	return c.ActivationBytes - c.NoGradientBytes
}

// pack replaces the sender's values by the packed copy that is sent. It returns how long packing takes.
func (m *held) pack(w int, in schedule.Instruction) (takesS float64) {
	c := m.terms.of(in)
	_, takesS, packs := c.Packed.of(in.Kind)
	if !packs {
		return 0
	}
	m.terms.p.Recipients(in, func(_, lo, hi, n int) bool {
		packed, whole := partOf(m.terms.bytesOf(in), lo, hi, n), partOf(c.wholeBytes(m.terms.p, in), lo, hi, n)
		m.touch(w, packed)
		m.accounts[w].hold(packed - whole)
		return true
	})
	m.sample(w)
	return takesS
}

// partOf returns the bytes of parts `lo` to `hi`-1, if `bytes` are divided into `n` equal parts.
func partOf(bytes int64, lo, hi, n int) int64 {
	return bytes*int64(hi)/int64(n) - bytes*int64(lo)/int64(n)
}

// handOver moves the charge for a message from its sender to its receiver.
func (m *held) handOver(from, to int, sent schedule.Instruction) {
	bytes := m.terms.portion(sent, to)
	m.accounts[from].hold(-bytes)
	m.accounts[to].hold(bytes)
	m.limit(to, m.terms.receiveOf(sent, to), false)
	m.sample(from)
	m.sample(to)
}

// receiveOf returns the instruction with which a worker receives a message.
func (t *terms) receiveOf(sent schedule.Instruction, to int) schedule.Instruction {
	receive := sent
	switch sent.Kind {
	case schedule.SF:
		receive.Kind, receive.Stage = schedule.RF, sent.Stage+1
	case schedule.SB:
		receive.Kind, receive.Stage = schedule.RB, sent.Stage-1
	default:
		return t.p.OtherSide(sent)
	}
	receive.Replica = int16(slices.Index(t.p.Placement[receive.Pipeline][receive.Stage], to))
	return receive
}

// rounded returns by how many bytes the input of a receive exceeds the messages that bring it. The input is the
// receiver's part of a micro-batch, and each message is a part of what was sent. The sizes of these parts may be
// rounded differently. Packed messages are also smaller.
func (t *terms) rounded(in schedule.Instruction, w int, c *StageCost) int64 {
	whole := c.InputBytes
	if in.Kind == schedule.RB {
		whole = t.received(in)
	}
	arrived, senders := int64(0), 0
	t.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		senders++
		arrived += t.portion(sent, w)
		return true
	})
	if senders == 0 {
		return 0
	}
	return whole - arrived
}

// portion returns the bytes of a send that go to the worker `to`, one of its recipients.
func (t *terms) portion(send schedule.Instruction, to int) int64 {
	bytes, mine := t.bytesOf(send), int64(0)
	if t.p.Replication != schedule.Split {
		return bytes
	}
	t.p.Recipients(send, func(w, lo, hi, n int) bool {
		if w == to {
			mine = partOf(bytes, lo, hi, n)
		}
		return w != to
	})
	return mine
}

// limit notes the first instruction that exceeds a worker's memory.
func (m *held) limit(w int, in schedule.Instruction, throughout bool) {
	if m.over != nil || m.most == nil {
		return
	}
	if most := m.most(w); most > 0 && m.accounts[w].peak > most {
		m.over = &Over{Worker: w, Instruction: in, Throughout: throughout, Bytes: m.accounts[w].peak}
	}
}

func (m *held) sample(w int) { m.journal.sample(w, m.accounts[w].bytes) }

// keepVersion adds to a worker's bytes the copy of a stage's weights that an instruction makes, or subtracts the copy
// that the instruction frees. A copy has the precision of the weights. The weights' gradients may have more bytes.
func (m *held) keepVersion(w int, in schedule.Instruction, c *StageCost) {
	if m.copies == nil {
		return
	}
	if change := m.copies[w][in]; change != 0 {
		m.accounts[w].hold(int64(change) * c.WeightBytes)
		m.sample(w)
	}
}
