package check

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// crossing refuses a message whose two ends lie on different sides of a drain or of a refused update. Each worker
// passes a drain, and learns that an update is refused, at a time of its own. If the two ends lay on different sides,
// one worker could wait for a message that is never sent, or never take one that was.
//
// Every message sent before a drain must be received before it, so that nothing is in flight once all workers have
// reached the drain.
//
// A worker learns at its first PV of k whether the update of minibatch k is refused. If it is, the worker sends nothing
// of later minibatches, and no worker may then be waiting for such a message. So if a worker receives a message of a
// later minibatch before its own first PV of k, the sender must have sent it before the sender's first PV of k.
func crossing(p *schedule.Program) error {
	if !p.ValidatesLater() && !has(p, schedule.DR) {
		return nil
	}
	sent := map[schedule.Key]side{}
	for w := range p.Workers {
		sides(p, w, func(_ int, in schedule.Instruction, here side) error {
			if in.Kind.IsSend() {
				sent[in.Key()] = here
			}
			return nil
		})
	}
	for w := range p.Workers {
		err := sides(p, w, func(at int, in schedule.Instruction, here side) (wrong error) {
			if !in.Kind.IsReceive() {
				return nil
			}
			p.Expected(in, func(message schedule.Instruction, from int) bool {
				if there, made := sent[message.Key()]; made {
					if why := apart(p, in, here, there); why != "" {
						wrong = &Error{Program: p.Name, Worker: w, Position: at, Instruction: in,
							Why: fmt.Sprintf("it takes %v, which worker %d sends %s", message, from, why)}
					}
				}
				return wrong == nil
			})
			return wrong
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// side is the number of drains and validations before an instruction in its list.
type side struct {
	drains    int
	validated int // 1 + the last minibatch whose update has been validated on the worker
}

// sides calls yield for every instruction of a worker, with its position, until yield returns an error.
func sides(p *schedule.Program, worker int, yield func(at int, in schedule.Instruction, here side) error) (err error) {
	at, here := -1, side{}
	p.Walk(worker, func(in schedule.Instruction) bool {
		at++
		switch in.Kind {
		case schedule.DR:
			here.drains++
		case schedule.PV:
			here.validated = max(here.validated, int(in.Micro)+1)
		}
		err = yield(at, in, here)
		return err == nil
	})
	return err
}

// apart returns which drain or validation wrongly lies between the two ends of a message, or "".
func apart(p *schedule.Program, receive schedule.Instruction, here, there side) string {
	n := p.MinibatchOf(receive)
	switch {
	case here.drains != there.drains:
		return fmt.Sprintf("behind %d drains, and stands behind %d; what is sent in front of a drain is taken in "+
			"front of it",
			there.drains, here.drains)
	case min(there.validated, n) > min(here.validated, n):
		return fmt.Sprintf("behind its validation of minibatch %d, and stands in front of this worker's: an update "+
			"that is "+
			"taken back there would leave this worker waiting", min(there.validated, n)-1)
	}
	return ""
}

func has(p *schedule.Program, k schedule.Kind) bool {
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for _, list := range part {
			for _, in := range list {
				if in.Kind == k {
					return true
				}
			}
		}
	}
	return false
}
