package machine_test

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// before is an earlier Machine, written independently: one state for all workers and their messages in flight.
type before struct {
	p       *schedule.Program
	cursors []schedule.Cursor
	running []bool
	arrived []map[schedule.Key]struct{} // by worker: messages not yet taken
	issued  [][]schedule.Instruction    // by worker: collectives not yet complete
	flying  int                         // messages sent and not yet arrived

	drains   []int // by worker: schedule.DR instructions reached
	released int   // number of drains that workers may pass
}

func newBefore(p *schedule.Program) *before {
	m := &before{p: p, running: make([]bool, p.Workers), drains: make([]int, p.Workers),
		issued: make([][]schedule.Instruction, p.Workers)}
	for w := range p.Workers {
		m.arrived = append(m.arrived, map[schedule.Key]struct{}{})
		m.cursors = append(m.cursors, schedule.NewCursor(p, w))
	}
	for w := range p.Workers {
		m.reach(w)
	}
	return m
}

// Poll returns what a worker's next instruction still needs.
func (m *before) Poll(w int) machine.Need {
	in, ok := m.cursors[w].Head()
	n := machine.Need{Worker: w, At: in}
	if !ok {
		n.Lack = machine.Ended
		return n
	}
	switch in.Kind {
	case schedule.RF, schedule.RB:
		m.p.Expected(in, func(sent schedule.Instruction, from int) bool {
			if _, here := m.arrived[w][sent.Key()]; here {
				return true
			}
			n.Lack, n.For, n.Peer = machine.Message, sent, from
			return false
		})
	case schedule.AR, schedule.TG, schedule.GN, schedule.U, schedule.PV, schedule.CK:
		for _, c := range m.issued[w] {
			if in.Kind == schedule.U && c.Kind == schedule.GN && m.p.PostValidate ||
				(in.Kind == schedule.U || in.Kind == schedule.GN) && c.Micro > in.Micro {
				continue // its schedule.PV waits for the norm; an update does not wait for a later sum
			}
			if in.Kind == schedule.CK || c.Stage == in.Stage && c.Pipeline == in.Pipeline {
				n.Lack, n.For = machine.Collective, c
				break
			}
		}
	case schedule.DR:
		if m.drains[w] > m.released {
			n.Lack = machine.Drain
		}
	}
	return n
}

// Start begins the worker's next instruction.
func (m *before) Start(w int) {
	in, ok := m.cursors[w].Head()
	if !ok || m.running[w] {
		panic(fmt.Sprintf("before: Start of worker %d, which has nothing to start", w))
	}
	m.running[w] = true
	switch in.Kind {
	case schedule.RF, schedule.RB:
		m.p.Expected(in, func(sent schedule.Instruction, from int) bool {
			delete(m.arrived[w], sent.Key())
			return true
		})
	case schedule.SF, schedule.SB:
		m.p.Recipients(in, func(int, int, int, int) bool {
			m.flying++
			return true
		})
	case schedule.AR, schedule.TG, schedule.GN:
		m.issued[w] = append(m.issued[w], in)
	}
}

// End says that the worker itself is done with the instruction.
func (m *before) End(w int) {
	if !m.running[w] {
		panic(fmt.Sprintf("before: End of worker %d, which runs nothing", w))
	}
	m.running[w] = false
	m.cursors[w].Advance()
	m.reach(w)
}

// Arrive says that a message has arrived, or that a collective is complete.
func (m *before) Arrive(w int, in schedule.Instruction) {
	switch in.Kind {
	case schedule.AR, schedule.TG, schedule.GN:
		if i := slices.Index(m.issued[w], in); i >= 0 {
			m.issued[w] = slices.Delete(m.issued[w], i, i+1)
		}
	default:
		m.arrived[w][in.Key()] = struct{}{}
		m.flying--
	}
	m.release()
}

// reach counts a drain when it becomes a worker's next instruction.
func (m *before) reach(w int) {
	if in, ok := m.cursors[w].Head(); ok && in.Kind == schedule.DR {
		m.drains[w]++
		m.release()
	}
}

// release lets all workers past a drain once every worker is at it and nothing is in flight.
func (m *before) release() {
	if m.flying > 0 {
		return
	}
	for w := range m.cursors {
		in, ok := m.cursors[w].Head()
		if !ok || in.Kind != schedule.DR || m.drains[w] != m.released+1 || len(m.issued[w]) > 0 {
			return
		}
	}
	m.released++
}
