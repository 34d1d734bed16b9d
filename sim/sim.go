package sim

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// Options of a run.
type Options struct {
	Cores  int           // cores the workers share; 0 gives each its own
	Gate   schedule.Gate // who may start; it is loaded with the Program. nil: a new schedule.Machine
	Record bool          // keep every event and memory sample in the Timeline
}

// Summary is what a run comes to.
type Summary struct {
	EndS            float64   `json:"end_s"`            // when the last instruction ended
	StepS           float64   `json:"step_s"`           // median over steps of the time from one update to the next; EndS for a single step
	BusyS           []float64 `json:"busy_s"`           // computing, by worker, in one step on average
	Bubble          float64   `json:"bubble"`           // 1 - sum(busy) / (workers x step)
	PeakBytes       []int64   `json:"peak_bytes"`       // by worker
	PeakActivations []int     `json:"peak_activations"` // by worker
	Instructions    int64     `json:"instructions"`
}

// StallError is a Program, or a Gate, that lets nobody move before the end.
type StallError struct {
	Program string
	AtS     float64
	Waits   []schedule.Need
}

func (e *StallError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sim: program %s stalls at %.6g s:", e.Program, e.AtS)
	for _, n := range e.Waits {
		b.WriteString("\n  " + n.String())
	}
	return b.String()
}

// Run simulates a lowered Program.
func Run(p *schedule.Program, costs Costs, o Options) (*trace.Timeline, Summary, error) {
	if !p.Lowered {
		return nil, Summary{}, fmt.Errorf("sim: program %s is not lowered; schedule.Lower adds its transfers and updates", p.Name)
	}
	if len(costs.Stages) != p.Stages {
		return nil, Summary{}, fmt.Errorf("sim: costs of %d stages for a program of %d", len(costs.Stages), p.Stages)
	}
	if o.Gate == nil {
		m, err := schedule.NewMachine(p, o.Cores)
		if err != nil {
			return nil, Summary{}, err
		}
		o.Gate = m
	} else if err := o.Gate.Load(p); err != nil {
		return nil, Summary{}, err
	}
	s := newState(p, costs, o)
	for w := range p.Workers {
		s.advance(w)
	}
	for len(s.queue.events) > 0 {
		s.happen(s.queue.pop())
	}
	if s.ended < p.Workers {
		return nil, Summary{}, &StallError{Program: p.Name, AtS: s.now, Waits: o.Gate.Waits()}
	}
	return s.timeline(), s.summary(), nil
}

// workerState is one worker in the simulation.
type workerState struct {
	running   bool
	ended     bool
	reached   float64 // when the head became the head
	started   float64
	blockedBy string
	busy      float64
	memory    account
	needs     bool // has been found lacking since it was reached
}

type state struct {
	p       *schedule.Program
	costs   Costs
	o       Options
	gate    schedule.Gate
	queue   queue
	now     float64
	ended   int
	count   int64
	workers []workerState
	links   map[[2]int]float64 // when each link is free again
	joined  map[schedule.Instruction]int
	per     int // micro-batches in a minibatch
	tl      trace.Timeline
	steps   []trace.StepMark
}

func newState(p *schedule.Program, costs Costs, o Options) *state {
	s := &state{
		p: p, costs: costs, o: o, gate: o.Gate, workers: make([]workerState, p.Workers),
		links: map[[2]int]float64{}, joined: map[schedule.Instruction]int{}, per: max(1, p.MicroBatches/max(1, p.Period)),
	}
	s.tl = trace.Timeline{Version: trace.Version, Source: "sim", Workers: p.Workers, Stages: p.Stages, Cores: o.Cores}
	for w := range s.workers {
		for _, held := range p.StagesOf(w) {
			s.workers[w].memory.hold(costs.of(held[1], held[2]).FixedBytes)
		}
		s.sample(w)
	}
	return s
}

// advance starts everything that worker w may start now.
func (s *state) advance(w int) {
	me := &s.workers[w]
	for !me.running && !me.ended {
		in, ok := s.gate.Head(w)
		if !ok {
			me.ended = true
			s.ended++
			return
		}
		need := s.gate.Poll(w)
		if !need.Ready() {
			if s.o.Record {
				me.blockedBy = need.Blocker()
			}
			return
		}
		s.gate.Start(w)
		s.count++
		me.running, me.started = true, s.now
		if d := s.begin(w, in); d > 0 {
			s.queue.push(event{at: s.now + d, worker: int32(w), from: -1, in: in})
			return
		}
		s.finish(w, in)
	}
}

// happen moves the clock to an event.
func (s *state) happen(e event) {
	s.now = e.at
	if e.from < 0 {
		s.finish(int(e.worker), e.in)
		s.advance(int(e.worker))
		return
	}
	if e.in.Kind == schedule.AR || e.in.Kind == schedule.TG || e.in.Kind == schedule.GN {
		s.record(int(e.worker), e.in, trace.Comm, s.now, 0)
	}
	s.wakeAll(s.gate.Arrive(int(e.worker), e.in, int(e.from)))
}

// wakeAll polls workers again; the list belongs to the Gate, so it is copied first.
func (s *state) wakeAll(list []int) {
	var room [16]int
	for _, w := range append(room[:0], list...) {
		s.advance(w)
	}
}

// finish ends a worker's instruction, and lets go on whoever waited for its core.
func (s *state) finish(w int, in schedule.Instruction) {
	me := &s.workers[w]
	if in.Kind.IsCompute() {
		me.busy += s.now - me.started
	}
	if !issued(in.Kind) {
		s.record(w, in, laneOf(in.Kind), s.now, s.bytesOf(in))
	}
	s.release(w, in)
	me.running = false
	wake := s.gate.End(w)
	me.reached, me.blockedBy = s.now, ""
	var room [16]int
	for _, other := range append(room[:0], wake...) {
		if other != w {
			s.advance(other)
		}
	}
}

func issued(k schedule.Kind) bool {
	switch k {
	case schedule.SF, schedule.SB, schedule.AR, schedule.TG, schedule.GN:
		return true
	}
	return false
}

func laneOf(k schedule.Kind) trace.Lane {
	if k.IsCompute() || k == schedule.CK {
		return trace.Compute
	}
	return trace.Comm
}

// begin does what an instruction does as it starts, and says how long it keeps the worker.
func (s *state) begin(w int, in schedule.Instruction) float64 {
	c := s.costs.of(int(in.Stage), int(in.Replica))
	switch in.Kind {
	case schedule.F:
		s.workers[w].memory.touch(c.ForwardPeak)
		return c.ForwardS + s.costs.DispatchS
	case schedule.B:
		s.gradients(w, c)
		s.workers[w].memory.touch(c.BackwardPeak)
		return c.BackwardS + s.costs.DispatchS
	case schedule.I:
		s.workers[w].memory.touch(c.BackwardPeak)
		return c.InputS + s.costs.DispatchS
	case schedule.W:
		s.gradients(w, c)
		s.workers[w].memory.touch(c.BackwardPeak)
		return c.WeightS + s.costs.DispatchS
	case schedule.U:
		return c.UpdateS
	case schedule.EV:
		return c.EvaluateS + s.costs.DispatchS
	case schedule.SF, schedule.SB:
		return s.send(w, in)
	case schedule.AR:
		s.join(w, in, c.AllReduceS)
	case schedule.TG:
		s.join(w, in, c.TiedS)
	case schedule.GN:
		s.join(w, in, c.NormS)
	}
	return 0
}

// send puts a message on its links. Where a transfer occupies the device, the worker is
// kept until the last receiver has it.
func (s *state) send(w int, in schedule.Instruction) float64 {
	kept := 0.0
	receivers := s.p.Receivers(in)
	bytes := s.bytesOf(in)
	if n := int64(len(receivers)); n > 1 && s.p.Replication == schedule.Split {
		bytes /= n
	}
	for _, to := range receivers {
		latency, taken := s.costs.Transfer(w, to, bytes)
		start := s.now
		if taken > 0 {
			key := [2]int{w, to}
			if s.costs.Link != nil {
				key = s.costs.Link(w, to)
			}
			start = max(s.now, s.links[key])
			s.links[key] = start + taken
		}
		end := start + latency + taken
		s.queue.push(event{at: end, worker: int32(to), from: int32(w), in: in})
		if s.o.Record {
			s.recordSpan(w, in, trace.Comm, s.now, start, end, bytes, blockedByLink(start > s.now))
		}
		if s.costs.Occupies != nil && s.costs.Occupies(w, to) {
			kept = max(kept, end-s.now)
		}
	}
	return kept
}

func blockedByLink(waited bool) string {
	if waited {
		return "link"
	}
	return ""
}

// join counts the members of a collective; the last one to come sets it going.
func (s *state) join(w int, in schedule.Instruction, takes float64) {
	members, workers := s.p.Group(in)
	key := members[0]
	s.joined[key]++
	if s.joined[key] < len(members) {
		return
	}
	delete(s.joined, key)
	for i, m := range members {
		s.queue.push(event{at: s.now + takes, worker: int32(workers[i]), from: int32(w), in: m})
	}
}

func (s *state) bytesOf(in schedule.Instruction) int64 {
	c := s.costs.of(int(in.Stage), int(in.Replica))
	switch in.Kind {
	case schedule.SF:
		return c.ActivationBytes
	case schedule.SB:
		return c.GradientBytes
	case schedule.AR:
		return c.ParameterBytes
	}
	return 0
}
