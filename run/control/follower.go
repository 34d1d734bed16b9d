package control

import "fmt"

// Follower is the protocol state of one process.
type Follower struct {
	process int
	idle    bool   // the process has no workers, so it ends each Program at once
	in, out uint64 // messages received and sent
	epoch   uint32

	under    bool // a Program is running
	stopping bool // the Program is being stopped
	limited  bool
	failed   bool
	leaving  bool // Leave was received
	left     bool
}

// NewFollower returns the Follower of a process with this number of workers.
func NewFollower(process, workers int) *Follower {
	return &Follower{process: process, idle: workers == 0}
}

// Say makes a Message of a body. It returns false if the Message is not needed any more.
func (f *Follower) Say(body Body) (Message, bool) {
	switch body.(type) {
	case Failed:
		if f.failed {
			return Message{}, false
		}
		f.failed, f.under = true, false
	case Ended:
		f.under = false
		if f.failed {
			return Message{}, false
		}
	case Record:
	case Left:
		f.left = true
	default:
		if f.failed || f.left {
			return Message{}, false
		}
	}
	f.out++
	return Message{N: f.out, From: f.process, Epoch: f.epoch, Body: body}, true
}

// Unsay takes back the last Message, which could not be sent.
func (f *Follower) Unsay() { f.out-- }

// Receive handles a message of the leader. It returns what to do: the body of the Message, or nil.
func (f *Follower) Receive(m Message) (Body, error) {
	refuse := func(why string) error {
		return fmt.Errorf("control: message %d of the leader, %s of program %d: %s", m.N, m.Body.kind(), m.Epoch, why)
	}
	if m.N != f.in+1 {
		return nil, refuse(fmt.Sprintf("its last one was number %d", f.in))
	}
	if m.From != 0 {
		return nil, refuse(fmt.Sprintf("it says that it is process %d", m.From))
	}
	if f.leaving {
		return nil, refuse("it has told the process to leave")
	}
	f.in = m.N
	if _, leave := m.Body.(Leave); leave {
		f.leaving, f.under = true, false
		return m.Body, nil
	}
	if f.failed {
		return nil, nil
	}
	switch m.Body.(type) {
	case Load, Evaluate, Save:
		if f.under || m.Epoch != f.epoch+1 {
			return nil, refuse(fmt.Sprintf("program %d is under way: %v", f.epoch, f.under))
		}
		f.epoch, f.under, f.stopping, f.limited = m.Epoch, true, false, false
		return m.Body, nil
	case Mark, Look, Commit, Prune:
		if f.under && !meanwhile(m.Body) {
			return nil, refuse("a program is under way")
		}
		return m.Body, nil
	case Beat, Show:
		return m.Body, nil
	case Failed:
		f.failed, f.under = true, false
		return m.Body, nil
	}
	if m.Epoch != f.epoch {
		return nil, refuse(fmt.Sprintf("program %d is the last", f.epoch))
	}
	switch m.Body.(type) {
	case Stop:
		if f.stopping {
			return nil, nil
		}
		f.stopping = true
		return m.Body, nil
	case Limit:
		if !f.stopping || f.limited {
			return nil, refuse("it answers no stop")
		}
		f.limited = true
		return m.Body, nil
	case Release:
		if !f.under && f.idle {
			return nil, nil // a drain that other workers still have to reach
		}
		if !f.under {
			return nil, refuse("no program is under way")
		}
		return m.Body, nil
	}
	return nil, refuse("a leader does not say this")
}

// Epoch returns the epoch of the current or last Program.
func (f *Follower) Epoch() uint32 { return f.epoch }
