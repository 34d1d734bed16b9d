package sim

import (
	"cmp"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// device is a worker's device. Some transfers occupy it, so that it cannot compute (BaPipe's synchronous execution,
// §3.2). Such a transfer waits until neither of its workers computes or is in another such transfer. It then goes
// before their next computation, and the sender's list waits until the message has arrived. This cannot deadlock: a
// device that computes or transfers becomes free by itself, and a transfer needs only its two devices.
type device struct {
	computing    bool
	transferring bool
	awaited      int // number of transfers that wait for the device
	sending      int // number of messages of the current send that have not arrived, if the list waits for them

	queue     []issue // issued by the host and not begun, if the device runs behind its host
	beganS    float64 // start of the current computation
	freeS     float64 // end of the previous computation
	blockedBy string  // why the current computation had to wait

	latest                      schedule.Instruction // the computation that began last
	startedS, endedS            float64              // startedS: see began; endedS: the latest end of a computation
	forwardFromS, backwardFromS float64              // start of the last forward and of the last backward
}

func (d *device) free() bool { return !d.transferring && d.awaited == 0 }

// transfer is one message that is under way or will be.
type transfer struct {
	from, to int
	in       schedule.Instruction
	bytes    int64
	issuedS  float64
	packS    float64 // time to pack it before its first bytes leave
}

// network holds the links, and the messages on them or waiting for them.
type network struct {
	free    map[[2]int]float64   // when each link is free again; a link carries one message at a time
	pending []transfer           // transfers that wait for their two devices, first come first served
	several map[schedule.Key]int // by send to several workers: number of messages that have not arrived
}

func newNetwork() network {
	return network{free: map[[2]int]float64{}, several: map[schedule.Key]int{}}
}

// take makes a message occupy `links` for `taken` seconds, as soon as the message is ready and all links are free. It
// returns the start.
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

// last reports whether this arrival was the last message of its send.
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

// send sends an instruction's messages. `until` is true if the sender's list waits until the messages have arrived.
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
	case messages == 0: // only in a Program that Check would refuse
		s.gate.Done(w, in)
	case messages > 1:
		s.network.several[in.Key()] = messages
	}
	if until {
		s.startPending()
	}
	return until
}

// depart makes a message occupy its links as soon as all of them are free, first come, first served. The latency comes
// after that and occupies no link. The last bytes of a message leave no sooner than they are computed.
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
		if s.traffic != nil {
			s.traffic.send(&message{transfer: t, readyS: start, latencyS: latency, takes: taken, occupies: takesDevices,
				links: slices.Clone(links)})
			return
		}
		start = s.network.take(links, start, taken)
	}
	s.arrives(t, takesDevices, start, max(s.queue.now, start+taken)+latency)
}

// arrives notes when a message will arrive.
func (s *state) arrives(t transfer, takesDevices bool, start, end float64) {
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
		// A message that leaves while it is computed starts before its send is issued.
		s.journal.span(t.from, t.in, trace.Comm, min(t.issuedS, start), start, end, t.bytes, blocked)
	}
}

// startPending starts every waiting transfer whose two devices are free, in order.
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

// delivered counts arrivals of the send that the worker's list waits for. The last arrival ends the send.
func (s *state) delivered(from int, in schedule.Instruction) {
	d := &s.workers[from].device
	if d.sending--; d.sending == 0 {
		s.finish(from, in)
	}
}

// bytesOf returns the bytes that an instruction sends or receives, or that an all-reduce sums. It returns 0 for any
// other instruction.
func (t *terms) bytesOf(in schedule.Instruction) int64 {
	c := t.of(in)
	if bytes, _, packed := c.Packed.of(in.Kind); packed {
		return bytes
	}
	return c.wholeBytes(t.p, in)
}

// wholeBytes returns what bytesOf returns if nothing is packed.
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
	case schedule.AR, schedule.SG, schedule.RG:
		return c.ParameterBytes
	case schedule.SW, schedule.RW:
		return c.WeightBytes
	}
	return 0
}
