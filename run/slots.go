package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// slotRepeats is how many repetitions of a Program's body are simulated to check the slots. By then the start-up has
// passed.
const slotRepeats = 4

// slots returns how many messages may wait at a receiver on an edge of a Program; 0 means no bound. If a number is
// configured, slots checks it and returns it. If all messages hand over their sender's memory, they take no memory of
// the receiver. slots then returns 0, because the Program itself is the bound. Otherwise slots returns the most
// messages that can be on any edge in any timing. With this number, a sender waits for a slot only in two cases: a
// credit is on its way, or a shortened Program leaves out the work that would free the slot. The number is computed
// once for all processes, in time proportional to messages times workers.
func (l *leader) slots(p *schedule.Program) (int, error) {
	if n := l.config.Wire.Slots; n > 0 {
		short := *p
		short.Repeat = min(p.Repeat, slotRepeats)
		if err := machine.CheckSlots(&short, n); err != nil {
			return 0, fmt.Errorf("run: with %d slots an edge: %w", n, err)
		}
		return n, nil
	}
	if !l.peers.asBytes {
		return 0, nil
	}
	all, err := check.InFlight(p)
	if err != nil {
		return 0, fmt.Errorf("run: %w", err)
	}
	most := 1
	for _, n := range all {
		most = max(most, n)
	}
	return most, nil
}
