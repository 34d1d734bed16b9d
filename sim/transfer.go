package sim

import (
	"cmp"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// device is what keeps a worker from computing beside its own list: transfers that
// occupy it (BaPipe's synchronous execution, §3.2). Such a transfer waits until neither
// of its workers computes or is in another, and then goes before their next
// computation; the sender's list stands still until it is through. No wait can be
// circular: a device that computes or transfers becomes free by itself, and a transfer needs
// nothing but its two devices.
type device struct {
	computing    bool
	transferring bool
	awaited      int // transfers that wait for it
	sending      int // transfers of the send that the list stands at

	queue     []issue // by a device behind its host: what it was given
	beganS    float64 // when it began the computation that it is at
	freeS     float64 // when it ended the one before
	blockedBy string  // of the computation that it is at

	latest                      schedule.Instruction // the computation that began last
	startedS, endedS            float64              // when, and when the one before it ended
	forwardFromS, backwardFromS float64              // when the last forward and the last backward began
}

func (d *device) free() bool { return !d.transferring && d.awaited == 0 }

// transfer is one message under way, or about to be.
type transfer struct {
	from, to int
	in       schedule.Instruction
	bytes    int64
	issuedS  float64
	packS    float64 // packing it, which comes before its first bytes leave
}

// network is the links, and the messages on them or in front of them.
type network struct {
	free    map[[2]int]float64   // when each link is free again: it carries one message at a time
	pending []transfer           // that wait for their two devices, first come first served
	several map[schedule.Key]int // of a send to several workers: messages that have not arrived
}

func newNetwork() network {
	return network{free: map[[2]int]float64{}, several: map[schedule.Key]int{}}
}

// take has a message take links as soon as all are free, and ready, for so long.
func (n *network) take(links [][2]int, ready, taken float64) (start float64) {
	start = ready
	for _, key := range links {
		start = max(start, n.free[key])
	}
	for _, key := range links {
		n.free[key] = start + taken
	}
	return start
}

// last says whether with a message that has arrived all of its send have.
func (n *network) last(in schedule.Instruction) bool {
	key := in.Key()
	left, several := n.several[key]
	if !several {
		return true
	}
	if left--; left > 0 {
		n.several[key] = left
		return false
	}
	delete(n.several, key)
	return true
}

// send puts an instruction's messages on their way; it says whether the sender's list
// stands still until they have arrived.
func (s *state) send(w int, in schedule.Instruction) (until bool) {
	bytes, messages := s.terms.bytesOf(in), 0
	s.memory.handsOut(w, in)
	packS := s.memory.pack(w, in)
	s.terms.p.Recipients(in, func(to, lo, hi, n int) bool {
		messages++
		t := transfer{from: w, to: to, in: in, issuedS: s.queue.now, packS: packS, bytes: partOf(bytes, lo, hi, n)}
		if s.terms.costs.Occupies != nil && s.terms.costs.Occupies(w, to) {
			until = true
			s.workers[w].device.sending++
			s.workers[w].device.awaited++
			s.workers[to].device.awaited++
			s.network.pending = append(s.network.pending, t)
			return true
		}
		if s.terms.costs.oneMemory(w, to) {
			s.memory.handOver(w, to, in)
		}
		s.depart(t, false)
		return true
	})
	switch {
	case messages == 0: // of a Program that Check would refuse
		s.gate.Done(w, in)
	case messages > 1:
		s.network.several[in.Key()] = messages
	}
	if until {
		s.startPending()
	}
	return until
}

// depart takes the links as soon as all are free, in the order in which transfers come to
// it: first come, first served. The latency behind it takes no link. The last bytes of a
// message leave no sooner than they are made.
func (s *state) depart(t transfer, takesDevices bool) {
	latency, taken, err := s.terms.costs.transferS(t)
	if err != nil {
		s.fault = cmp.Or(s.fault, err)
		return
	}
	start := s.leaves(t) + t.packS
	if taken > 0 {
		own := [1][2]int{{t.from, t.to}}
		links := own[:]
		if s.terms.costs.Links != nil {
			links = s.terms.costs.Links(t.from, t.to)
		}
		start = s.network.take(links, start, taken)
	}
	end := max(s.queue.now, start+taken) + latency
	what := arrival
	if takesDevices {
		what = occupying
	}
	s.queue.push(event{at: end, worker: int32(t.to), from: int32(t.from), in: t.in, what: what})
	if s.o.Record {
		blocked := ""
		if start > t.issuedS {
			blocked = trace.ByLink
		}
		// What leaves while it is made is under way before it is issued.
		s.journal.span(t.from, t.in, trace.Comm, min(t.issuedS, start), start, end, t.bytes, blocked)
	}
}

// startPending lets every transfer go whose two devices are free, in order.
func (s *state) startPending() {
	if len(s.network.pending) == 0 {
		return
	}
	waiting := s.network.pending[:0]
	for _, t := range s.network.pending {
		from, to := &s.workers[t.from].device, &s.workers[t.to].device
		if from.computing || to.computing || from.transferring || to.transferring {
			waiting = append(waiting, t)
			continue
		}
		from.awaited--
		to.awaited--
		from.transferring, to.transferring = true, true
		s.depart(t, true)
	}
	s.network.pending = waiting
}

// delivered counts the messages of the send that a list stands at; the last one ends it.
func (s *state) delivered(from int, in schedule.Instruction) {
	d := &s.workers[from].device
	if d.sending--; d.sending == 0 {
		s.finish(from, in)
	}
}

// bytesOf is what a send carries in all, or what a collective moves.
func (t *terms) bytesOf(in schedule.Instruction) int64 {
	c := t.of(in)
	if bytes, _, packed := c.Packed.of(in.Kind); packed {
		return bytes
	}
	return c.wholeBytes(t.p, in)
}

// wholeBytes is bytesOf where nothing is packed.
func (c *StageCost) wholeBytes(p *schedule.Program, in schedule.Instruction) int64 {
	switch in.Kind {
	case schedule.SF:
		return c.ActivationBytes
	case schedule.SB:
		return c.GradientBytes
	case schedule.RF:
		return c.InputBytes
	case schedule.RB:
		return c.received(p, in)
	case schedule.AR, schedule.SG, schedule.RG, schedule.SW, schedule.RW:
		return c.ParameterBytes
	}
	return 0
}
