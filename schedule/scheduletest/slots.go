package scheduletest

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// Slots says how many slots of time each kind takes in a drawing without costs.
type Slots struct {
	F, B, I, W, U, EV int
	Transfer          int // slots of a transfer between two workers
}

// UnitSlots has the times of most papers' drawings: a backward takes as long as two forwards.
var UnitSlots = Slots{F: 1, B: 2, I: 1, W: 1, EV: 1}

func (s Slots) of(k schedule.Kind) int {
	switch k {
	case schedule.F:
		return s.F
	case schedule.B:
		return s.B
	case schedule.I:
		return s.I
	case schedule.W:
		return s.W
	case schedule.U:
		return s.U
	case schedule.EV:
		return s.EV
	}
	return 0
}

// Drawing is a Program on a clock that counts slots.
type Drawing struct {
	Spans   []Span
	Slots   int
	Busy    int // slots in which workers computed, summed over all workers
	Workers int
}

// Bubble returns 1 - busy / (workers x slots).
func (d *Drawing) Bubble() float64 {
	if d.Slots == 0 {
		return 0
	}
	return 1 - float64(d.Busy)/float64(d.Workers*d.Slots)
}

// String returns the grid, with one column per slot.
func (d *Drawing) String() string {
	text, err := Grid(d.Workers, d.Spans, 1)
	if err != nil {
		return err.Error() + "\n"
	}
	return text
}

// Draw plays a Program slot by slot. A compute-only Program is lowered first. A Program that does not pass Check is
// refused.
func Draw(p *schedule.Program, s Slots) (*Drawing, error) {
	for _, n := range []int{s.F, s.B, s.I, s.W, s.U, s.EV, s.Transfer} {
		if n < 0 {
			return nil, fmt.Errorf("scheduletest: drawing: an instruction of %d slots; give 0 or more", n)
		}
	}
	if _, err := check.Check(p); err != nil {
		return nil, err
	}
	if !p.Lowered {
		var err error
		if p, err = lower.Lower(p, lower.Options{Tied: p.Tied, Clip: p.Clip}); err != nil {
			return nil, err
		}
	}
	m, err := machine.New(p, machine.Options{})
	if err != nil {
		return nil, err
	}
	d := &drawing{Drawing: Drawing{Workers: p.Workers}, p: p, m: m, s: s, until: make([]int, p.Workers),
		joined: map[schedule.Instruction]int{}}
	for d.step() {
	}
	if waits := m.Waits(); len(waits) > 0 {
		return nil, &check.Error{Program: p.Name, Worker: -1, Position: -1, Why: "it would block for ever",
			Waits: waits}
	}
	return &d.Drawing, nil
}

// drawing plays a Machine with a clock of whole slots, slowly and simply.
type drawing struct {
	Drawing
	p      *schedule.Program
	m      *machine.Machine
	s      Slots
	now    int
	until  []int // by worker: 1 + the end of what it runs; 0 if it runs nothing
	coming []arrival
	joined map[schedule.Instruction]int
}

type arrival struct {
	at, worker int
	in         schedule.Instruction
}

func (d *drawing) arrive(a arrival) {
	if a.in.Kind.IsCollective() {
		d.m.Done(a.worker, a.in)
	} else {
		d.m.Arrive(a.worker, a.in)
	}
}

// step does everything possible in this slot and moves to the next time at which something ends.
func (d *drawing) step() bool {
	for moved := true; moved; {
		moved = false
		for i := 0; i < len(d.coming); {
			if a := d.coming[i]; a.at <= d.now {
				d.coming = slices.Delete(d.coming, i, i+1)
				d.arrive(a)
				moved = true
				continue
			}
			i++
		}
		for w := range d.until {
			moved = d.worker(w) || moved
		}
	}
	next := math.MaxInt
	for _, u := range d.until {
		if u > 0 {
			next = min(next, u-1)
		}
	}
	for _, a := range d.coming {
		next = min(next, a.at)
	}
	if next == math.MaxInt {
		return false
	}
	d.now = next
	return true
}

// worker ends and starts as many instructions of one worker as it can now.
func (d *drawing) worker(w int) (moved bool) {
	for {
		if u := d.until[w]; u > 0 {
			if u-1 > d.now {
				return moved
			}
			d.until[w] = 0
			d.m.Issued(w, !d.m.Poll(w).At.Kind.IsCollective())
		}
		need := d.m.Poll(w)
		if !need.Ready() {
			return moved
		}
		in := need.At
		d.m.Start(w)
		moved = true
		took := d.s.of(in.Kind)
		d.until[w] = d.now + took + 1
		if took > 0 {
			d.Spans = append(d.Spans, Span{Worker: w, Text: in.String(), Start: float64(d.now),
				End: float64(d.now + took)})
			d.Busy += took
			d.Slots = max(d.Slots, d.now+took)
		}
		d.issue(w, in)
	}
}

func (d *drawing) issue(w int, in schedule.Instruction) {
	switch {
	case in.Kind.IsSend():
		for _, to := range d.p.Receivers(in) {
			d.coming = append(d.coming, arrival{d.now + d.s.Transfer, to, in})
		}
	case in.Kind.IsCollective():
		members, workers := d.p.Group(in)
		if d.joined[members[0]]++; d.joined[members[0]] == len(members) {
			for i, member := range members {
				d.coming = append(d.coming, arrival{d.now, workers[i], member})
			}
		}
	}
}
