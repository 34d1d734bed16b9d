package sim

import (
	"cmp"
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// A device may run behind its host (Costs.IssueS, Options.Ahead). The host takes IssueS to issue a computation, or
// SendS to issue a send, and then continues with its list. The device computes its instructions in the order issued,
// each as soon as the one before it is done. A send or a collective begins once the computations issued before it are
// done. The bytes that an instruction holds count from when the device begins it. Receives stay with the host: a
// message is there when it has arrived.

// forDevice reports whether an instruction is carried out by the device, after its host has issued it.
func forDevice(in schedule.Instruction) bool { return in.Kind.IsCompute() || in.Kind.IsIssued() }

// issue is an instruction given to a device.
type issue struct {
	in        schedule.Instruction
	blockedBy string // what its host had waited for
}

// checkDevices refuses devices that run behind their hosts if they share cores, or if transfers occupy devices or
// stream from them.
func (c *Costs) checkDevices(shared machine.Pools, ahead int) error {
	switch {
	case c.IssueS == 0 && ahead == 0:
	case len(shared) > 0:
		return fmt.Errorf("sim: %d shared cores and devices that run behind their hosts; it is one or the other",
			shared.Tokens())
	case c.Occupies != nil || c.Streams != nil:
		return fmt.Errorf("sim: devices that run behind their hosts, and transfers that take part in computations " +
			"(BaPipe's boards)")
	}
	return nil
}

// host starts the time that the host needs to issue an instruction.
func (s *state) host(w int, in schedule.Instruction) {
	takes := 0.0
	switch {
	case in.Kind.IsCompute():
		takes = s.terms.costs.IssueS
	case in.Kind.IsSend():
		takes = s.terms.costs.SendS
	}
	if takes > 0 {
		s.queue.push(event{at: s.queue.now + takes, worker: int32(w), in: in, what: hostEnd})
		return
	}
	s.hand(w, in)
}

// hand gives the device an instruction that its host has issued.
func (s *state) hand(w int, in schedule.Instruction) {
	d := &s.workers[w].device
	d.queue = append(d.queue, issue{in, s.workers[w].blockedBy})
	s.issued(w, in, false)
	s.proceed(w)
}

// proceed makes a device that does not compute continue with its queue.
func (s *state) proceed(w int) {
	d := &s.workers[w].device
	for !d.computing && len(d.queue) > 0 {
		next := d.queue[0]
		d.queue = d.queue[1:]
		switch in := next.in; {
		case in.Kind.IsSend():
			s.send(w, in)
			s.executed(w, in)
		case in.Kind.IsIssued(): // a collective, or work of the reference's own thread
			s.begin(w, in)
			s.executed(w, in)
		default:
			me := &s.workers[w]
			host := me.started
			me.started, d.beganS = s.queue.now, s.queue.now
			takes, _ := s.begin(w, in)
			me.started = host
			s.memory.limit(w, in, false)
			d.blockedBy = next.blockedBy
			s.queue.push(event{at: s.queue.now + takes, worker: int32(w), in: in, what: deviceEnd})
		}
	}
}

// leaveDevice ends a computation of a device.
func (s *state) leaveDevice(w int, in schedule.Instruction) {
	me := &s.workers[w]
	d, host := &me.device, me.started
	me.started = d.beganS
	s.executed(w, in)
	me.started, d.freeS = host, s.queue.now
	s.proceed(w)
	s.wakeAll(s.gate.Done(w, in))
}

// giveBack returns the slots of received messages to their senders, as messages of zero bytes.
func (s *state) giveBack(w int, in schedule.Instruction) {
	s.terms.p.Expected(in, func(sent schedule.Instruction, from int) bool {
		latency, _, err := s.terms.costs.transferS(transfer{from: w, to: from, in: in})
		if err != nil {
			s.fault = cmp.Or(s.fault, err)
			return false
		}
		s.queue.push(event{at: s.queue.now + latency, worker: int32(from), from: int32(w), in: sent, what: credit})
		return true
	})
}
