package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// slotRepeats is how many repetitions of a body are played for its slots: what the first leaves in flight has
// passed.
const slotRepeats = 4

// slots is how many messages may lie with a receiver on an edge of a Program; 0 for no bound. Where memory changes
// hands a message takes none of its receiver, and the Program alone bounds what lies there. Elsewhere it is the most
// that can lie on any edge in any timing, so that what waits for a slot waits for a credit that is on its way, or for
// what a Program that is cut short leaves out. It is found for all processes at once: it takes as many steps as the
// Program has messages, times the workers.
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
