package sim

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
)

// Options holds the settings of Run; the zero value is usable.
type Options struct {
	Ahead  int          // how many computations may be issued and not done when a host issues the next one
	Slots  int          // messages that an edge holds between their send and their receive; 0 means no limit
	Gate   machine.Gate // decides who may start, made for the Program; nil means a machine.Machine
	Record bool         // keep every event and memory sample in the Timeline
	// BucketBytes is the least number of gradient bytes that replicas sum at once during a backward. If it is 0, Run
	// uses the Shares in Costs as they are; CostsOf makes them for schedule.BucketBytes. BucketBytes has no effect if
	// the plan sets a bucket size, or if the plan's gradients are summed only after the backward.
	BucketBytes int64
	// Vary changes the time of computations; nil leaves them as in Costs. Costs.Noise can make one.
	Vary Vary
	// MemoryBytes returns the memory of a worker, for Summary.Over. 0 or a nil function means no limit.
	MemoryBytes func(worker int) int64
	// takes returns how long each instruction keeps its worker, in place of the instruction's cost; nil means the cost.
	// With takes, an instruction holds its peak until its end, together with messages that arrive before its end.
	takes func(worker int, in schedule.Instruction) float64
}

// Vary returns the time of a computation on a worker, in seconds and at least 0. `takesS` is the computation's cost.
// Vary is not called for updates. Its result must depend only on the arguments, so that a Program always gives the same
// run.
type Vary func(worker int, in schedule.Instruction, takesS float64) float64

// mostPlayed is the largest number of instructions of a simulation, counting repetitions. It is checked before any
// memory of that size is allocated. It is over four times the number in a step of 1,024 workers with 4,096
// micro-batches.
const mostPlayed = 1 << 27

// Run simulates a lowered Program. The Program need not have passed Check: if it blocks, Run returns a StallError.
func Run(p *schedule.Program, costs Costs, o Options) (*trace.Timeline, Summary, error) {
	if !p.Lowered {
		return nil, Summary{}, fmt.Errorf("sim: program %s is not lowered; lower.Lower adds its transfers and updates",
			p.Name)
	}
	if err := check.Validate(p); err != nil {
		return nil, Summary{}, fmt.Errorf("sim: %w", err)
	}
	if err := costs.check(p); err != nil {
		return nil, Summary{}, err
	}
	if n := p.Instructions(); n > mostPlayed {
		return nil, Summary{}, fmt.Errorf("sim: program %s has %d instructions, its body %d times; at most %d are "+
			"simulated: give fewer repetitions or micro-batches", p.Name, n, p.Repeat, int64(mostPlayed))
	}
	if o.BucketBytes < 0 {
		return nil, Summary{}, fmt.Errorf("sim: gradients are summed %d bytes at once; give more than 0, or 0 for the usual",
			o.BucketBytes)
	}
	if o.BucketBytes > 0 {
		costs = costs.inBuckets(o.BucketBytes)
	}
	shared := costs.Cores.Scarce(p.Workers)
	if err := costs.checkDevices(shared, o.Ahead); err != nil {
		return nil, Summary{}, err
	}
	if o.Gate == nil {
		m, err := machine.New(p, machine.Options{Cores: shared, Ahead: o.Ahead, Slots: o.Slots})
		if err != nil {
			return nil, Summary{}, err
		}
		o.Gate = m
	}
	s := newState(p, costs, o)
	for w := range p.Workers {
		s.advance(w)
	}
	for len(s.queue.events) > 0 && s.fault == nil {
		e := s.queue.pop()
		if s.traffic != nil && s.traffic.stale(e) {
			continue
		}
		s.queue.now = e.at
		s.happen(e)
	}
	if s.fault != nil {
		return nil, Summary{}, s.fault
	}
	if math.IsInf(s.queue.now, 0) {
		return nil, Summary{}, fmt.Errorf("sim: program %s: its times add up to more than a number can be", p.Name)
	}
	if s.ended < p.Workers {
		return nil, Summary{}, machine.NewStall("sim", fmt.Sprintf("stalls at %.6g s:", s.queue.now), p, o.Gate.Waits(), nil)
	}
	return s.timeline(), s.summary(), nil
}

type workerState struct {
	running   bool
	ended     bool
	reached   float64 // when the current instruction became the head of its list
	started   float64
	blockedBy string // why the head could not start at the last poll
	device    device
	aside     float64 // when the thread of its reference finishes its work
}

// state is a running simulation. The queue has the end of everything under way, and everything that can start has
// started. It has a method for each thing that a worker, a device or a message does, most of which concern several of
// its parts.
type state struct {
	terms   terms
	o       Options
	gate    machine.Gate
	behind  bool // devices run behind their hosts
	queue   queue
	ended   int
	count   int64
	workers []workerState
	network network
	sums    sums
	traffic *traffic // nil without Costs.Ports
	memory  held
	journal journal
	fault   error // a non-nil value ends the simulation
}

// terms is a Program and the costs of its instructions. It never changes.
type terms struct {
	p      *schedule.Program
	costs  Costs
	stages int
	places []int        // place of the first replica of each stage of each pipeline
	prices []*StageCost // by place
}

func termsOf(p *schedule.Program, costs Costs) (t terms) {
	t = terms{p: p, costs: costs, stages: p.Stages}
	for pl, stages := range p.Placement {
		for s, on := range stages {
			t.places = append(t.places, len(t.prices))
			for r := range on {
				at := schedule.Instruction{Pipeline: int16(pl), Stage: int32(s), Replica: int16(r)}
				t.prices = append(t.prices, costs.on(p, at))
			}
		}
	}
	return t
}

// of returns the costs of an instruction's replica.
func (t *terms) of(in schedule.Instruction) *StageCost { return t.prices[t.place(in)] }

// place returns the number of an instruction's replica, counted over all stages of all pipelines.
func (t *terms) place(in schedule.Instruction) int {
	return t.places[int(in.Pipeline)*t.stages+int(in.Stage)] + int(in.Replica)
}

func newState(p *schedule.Program, costs Costs, o Options) *state {
	s := &state{terms: termsOf(p, costs), o: o, gate: o.Gate, behind: o.Ahead > 0 || costs.IssueS > 0,
		workers: make([]workerState, p.Workers), network: newNetwork()}
	s.sums, s.traffic = newSums(&s.terms), newTraffic(s)
	s.journal = newJournal(p, &s.queue, o.Record)
	s.journal.tl.Cores, s.journal.tl.Pools = sharing(costs.Cores, p.Workers)
	s.memory = newHeld(&s.terms, &s.journal, o.MemoryBytes)
	return s
}

// sharing returns the shared cores in the form that a Timeline uses.
func sharing(pools machine.Pools, workers int) (cores int, apart []trace.Pool) {
	if len(pools) == 1 && (pools[0].Workers == nil || len(pools[0].Workers) == workers) {
		return pools[0].Cores, nil
	}
	for _, p := range pools {
		apart = append(apart, trace.Pool{Cores: p.Cores, Workers: p.Workers})
	}
	return 0, apart
}

// advance starts everything that worker w may start now.
func (s *state) advance(w int) {
	me := &s.workers[w]
	for !me.running && !me.ended {
		need := s.gate.Poll(w)
		in := need.At
		switch {
		case need.Lack == machine.Ended:
			me.ended = true
			s.ended++
			return
		case in.Kind.IsCompute() && !me.device.free():
			me.blockedBy = trace.ByLink
			return
		case !need.Ready():
			if s.o.Record {
				me.blockedBy = need.Blocker()
			}
			return
		}
		s.gate.Start(w)
		s.count++
		me.running, me.started = true, s.queue.now
		if s.behind && forDevice(in) {
			s.host(w, in)
			continue
		}
		takes, until := s.begin(w, in)
		s.memory.limit(w, in, false)
		switch {
		case until:
		case takes > 0:
			s.queue.push(event{at: s.queue.now + takes, worker: int32(w), in: in, what: hostEnd})
		default:
			s.finish(w, in)
		}
	}
}

// happen carries out an event at its time.
func (s *state) happen(e event) {
	w := int(e.worker)
	switch e.what {
	case hostEnd:
		if s.behind && forDevice(e.in) {
			s.hand(w, e.in)
		} else {
			s.finish(w, e.in)
			s.startPending()
		}
		s.advance(w)
	case deviceEnd:
		s.leaveDevice(w, e.in)
	case summed:
		if e.in.Kind == schedule.AR {
			s.sums.devices[w].over()
		}
		s.memory.moved(w, e.in)
		s.wakeAll(s.gate.Done(w, e.in))
	case flowed:
		s.traffic.flowed(e.worker)
	case credit:
		s.wakeAll(s.gate.Credit(w, int(e.from)))
	case arrival, occupying:
		s.arrive(int(e.from), w, e.in, e.what == occupying)
	}
}

// arrive delivers a message: it hands the memory over if that has not happened yet, tells the Gate, and wakes workers.
func (s *state) arrive(from, to int, in schedule.Instruction, occupying bool) {
	if occupying {
		s.workers[from].device.transferring, s.workers[to].device.transferring = false, false
	}
	if occupying || !s.terms.costs.oneMemory(from, to) {
		s.memory.handOver(from, to, in)
	}
	s.wakeAll(s.gate.Arrive(to, in))
	if occupying { // the receiver's next computation goes before the waiting transfers
		s.advance(to)
	}
	if s.network.last(in) {
		s.wakeAll(s.gate.Done(from, in))
	}
	if occupying {
		s.delivered(from, in)
		s.startPending()
		s.advance(from)
		s.advance(to)
	}
}

// wakeAll polls workers again. The Gate owns the list, so it is copied first.
func (s *state) wakeAll(list []int) {
	if len(list) == 1 {
		s.advance(list[0])
		return
	}
	var room [16]int
	for _, w := range append(room[:0], list...) {
		s.advance(w)
	}
}

// finish ends an instruction that a worker does itself, and wakes workers that wait for its core. It gives back the
// slot of a received message.
func (s *state) finish(w int, in schedule.Instruction) {
	s.executed(w, in)
	s.issued(w, in, in.Kind.IsCompute())
	if in.Kind.IsReceive() && s.o.Slots > 0 {
		s.giveBack(w, in)
	}
}

// issued lets a worker's host continue with its list after an instruction, and wakes the other workers that can start
// now.
func (s *state) issued(w int, in schedule.Instruction, done bool) {
	me := &s.workers[w]
	me.running = false
	wake := s.gate.Issued(w, done)
	me.reached, me.blockedBy = s.queue.now, ""
	if len(wake) == 1 && wake[0] == w {
		return
	}
	var room [16]int
	for _, other := range append(room[:0], wake...) {
		if other != w {
			s.advance(other)
		}
	}
}

// executed notes the effects of an instruction that has ended: on memory, sums, the step's times and the record.
func (s *state) executed(w int, in schedule.Instruction) {
	me := &s.workers[w]
	if in.Kind.IsCompute() {
		if s.o.takes != nil {
			s.memory.inside(w, in, s.terms.of(in))
		}
		me.device.computing, me.device.endedS = false, s.queue.now
		s.journal.markEnd(w, in, s.queue.now-me.started)
		s.sums.closes(w, in, me.started, s.queue.now)
	}
	if s.o.Record && !in.Kind.IsIssued() {
		s.record(w, in)
	}
	s.memory.settle(w, in)
	s.memory.limit(w, in, false)
}

// begin carries out the start of an instruction, and returns how long it keeps the worker. `until` is true if another
// event will end the instruction.
func (s *state) begin(w int, in schedule.Instruction) (takes float64, until bool) {
	takes, until = s.costing(w, in)
	if in.Kind.IsCompute() {
		takes += s.sums.devices[w].pays(in)
	}
	if s.o.takes != nil {
		takes = s.o.takes(w, in)
	}
	if s.traffic != nil {
		s.traffic.computes(in, takes)
	}
	return takes, until
}

// costing does what begin does, but without the delay by gradient sums, Options.takes and shared ports.
func (s *state) costing(w int, in schedule.Instruction) (takes float64, until bool) {
	c := s.terms.of(in)
	s.memory.inside(w, in, c)
	switch in.Kind {
	case schedule.F:
		takes = c.ForwardS
	case schedule.B:
		takes = s.workers[w].device.backwardS(in, c, s.queue.now, s.terms.p.Paired)
	case schedule.I:
		takes = c.InputS
	case schedule.W:
		takes = c.WeightS
	case schedule.EV:
		takes = c.EvaluateS
	case schedule.U:
		s.compute(w, in)
		s.sees(w, in)
		return c.updateS(s.terms.p.UpdateCost(in)) + c.GatherS, false
	case schedule.CK:
		return c.SaveS, false
	case schedule.SF, schedule.SB, schedule.SG, schedule.SW:
		_, packing, _ := c.Packed.of(in.Kind)
		return s.terms.costs.SendS + packing, s.send(w, in)
	case schedule.RF, schedule.RB, schedule.RG, schedule.RW:
		_, unpacking, _ := c.Packed.of(in.Kind)
		return s.terms.costs.ReceiveS + unpacking, false
	case schedule.AR:
		s.join(w, in, c.AllReduceS)
		return 0, false
	case schedule.TG:
		s.join(w, in, c.TiedS)
		return 0, false
	case schedule.GN:
		s.join(w, in, c.NormS)
		return 0, false
	case schedule.UR:
		s.move(w, in, c.updateS(s.terms.p.UpdateCost(in)))
		return 0, false
	default:
		return 0, false
	}
	s.compute(w, in)
	return s.varied(w, in, takes), false
}

// compute notes that a worker's device is busy with a computation.
func (s *state) compute(w int, in schedule.Instruction) {
	s.workers[w].device.began(in, s.workers[w].started, s.terms.p.Paired)
	s.journal.markStart(w, in)
}
