package shape

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// fits returns an error if some worker holds more than `room` micro-batches. After the first half of its backward, a
// micro-batch counts in part.
func fits(p *schedule.Program, stages []stage, room int) error {
	for _, list := range p.Body {
		held := fullest(list, stages, slices.Repeat([]float64{1}, len(stages)))
		if held > float64(room)+1e-9 {
			return fmt.Errorf("shape: %s holds %.1f micro-batches, and there is room for %d", p.Name, held, room)
		}
	}
	return nil
}

// roomy returns the fastest order that holds at most Room micro-batches. It tries an order made from the stages' times,
// and the orders of the families with split backwards.
func (s Shape) roomy(micros int, stages []stage, l *links) (best *schedule.Program, err error) {
	latency, taken := l.transfer(0, 1, stages[0].boundary)
	least := math.Inf(1)
	plain := s
	plain.Room = 0
	orders := []string{""} // "" stands for the order made from times
	for _, f := range family.All() {
		if f.Halves && !roles.SeveralStages(f) {
			orders = append(orders, f.Name)
		}
	}
	for _, name := range orders {
		var p *schedule.Program
		if plain.Schedule = name; name == "" {
			p, err = s.timed(micros, stages, latency+taken)
		} else if p, err = plain.program(micros, stages, l); err == nil {
			err = fits(p, stages, s.Room)
		}
		if err != nil {
			continue
		}
		took, err := s.simulated(p, stages, l)
		if err != nil {
			return nil, err
		}
		if took < least {
			best, least = p, took
		}
	}
	if best == nil {
		return nil, err
	}
	return best, nil
}

// timed returns an order by the heuristic of Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024, section 3.1). It
// uses the times of all computations. Stage i first runs the forwards that end before its first gradient can arrive, as
// far as it has room. Then it alternates input gradients and forwards. The stage runs a weight gradient if it needs
// room, or if it would otherwise wait for longer than `wait` times the gradient's own time. From its input gradient to
// its weight gradient, a micro-batch occupies only the fraction `pending` of its room. timed tries several waits and
// depths and takes the best, as the authors try several settings.
func (s Shape) timed(micros int, stages []stage, transferS float64) (*schedule.Program, error) {
	var best schedule.Part
	least := math.Inf(1)
	for _, wait := range []float64{0, 0.25, 0.5, 0.75, 1, 2} {
		for more := range 3 {
			t := timedList{stages: stages, micros: micros, room: float64(s.Room), transferS: transferS, wait: wait}
			if part, took := t.run(more); took < least {
				best, least = part, took
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("shape: no stage can go on with room for %d micro-batches", s.Room)
	}
	settings := schedule.Settings{Placement: schedule.Replicated(s.Stages, 1), MicroBatches: micros}
	settings, err := settings.Checked()
	if err != nil {
		return nil, fmt.Errorf("shape: %w", err)
	}
	p := settings.Program()
	p.Name, p.Weights, p.Body = "timed", schedule.Sync, best
	return p, nil
}

// timedList is an order under construction; all slices are by worker.
type timedList struct {
	stages    []stage
	micros    int
	room      float64
	transferS float64
	wait      float64

	free                      []float64
	forwards, inputs, weights []int
	forwardEnds, inputEnds    [][]float64
	depths                    []int
	lists                     schedule.Part
}

// run writes the lists. It derives the depth of each stage from the times, and allows up to `more` forwards beyond
// that. For each worker it takes the time from the first computation to the last, and returns the longest of these.
func (t *timedList) run(more int) (schedule.Part, float64) {
	p := len(t.stages)
	t.free, t.depths = make([]float64, p), make([]int, p)
	t.forwards, t.inputs, t.weights = make([]int, p), make([]int, p), make([]int, p)
	t.forwardEnds, t.inputEnds, t.lists = make([][]float64, p), make([][]float64, p), make(schedule.Part, p)
	back := 0.0 // from the end of a forward to the arrival of its gradient
	for w := p - 1; w >= 0; w-- {
		t.depths[w] = min(t.micros, int(t.room), 1+int(back/t.stages[w].forward+0.01)+min(more, p-1-w))
		if w > 0 {
			back += t.stages[w].forward + t.stages[w].input + 2*t.transferS
		}
	}
	for w := 1; w < p; w++ {
		t.depths[w] = min(t.depths[w], t.depths[w-1])
	}
	started := make([]float64, p)
	for left := 2 * p * t.micros; left > 0; {
		went := false
		for w := range p {
			for {
				kind, ready, known := t.head(w)
				if !known || !t.fill(w, kind, ready) {
					break
				}
				at := max(t.free[w], ready)
				if t.forwards[w] == 0 {
					started[w] = at
				}
				t.take(w, kind, at)
				left--
				went = true
			}
		}
		if !went {
			return nil, math.Inf(1)
		}
	}
	longest := 0.0
	for w := range p {
		for t.weights[w] < t.micros {
			t.take(w, schedule.W, t.free[w])
		}
		longest = max(longest, t.free[w]-started[w])
	}
	return t.lists, longest
}

// head returns a worker's next forward or input gradient, and the time when its input is ready. `known` is false if
// that time is not known yet, or if nothing is left to do.
func (t *timedList) head(w int) (kind schedule.Kind, ready float64, known bool) {
	f, i := t.forwards[w], t.inputs[w]
	if f < t.micros && f-i < t.depths[w] {
		if w == 0 {
			return schedule.F, 0, true
		}
		if f >= len(t.forwardEnds[w-1]) {
			return schedule.F, 0, false
		}
		return schedule.F, t.forwardEnds[w-1][f] + t.transferS, true
	}
	if i >= f {
		return schedule.I, 0, false
	}
	if w == len(t.stages)-1 {
		return schedule.I, t.forwardEnds[w][i], true
	}
	if i >= len(t.inputEnds[w+1]) {
		return schedule.I, 0, false
	}
	return schedule.I, t.inputEnds[w+1][i] + t.transferS, true
}

// fill runs weight gradients before a worker's next computation, whose input arrives at the time `ready`. It runs them
// as long as the worker would otherwise wait for more than t.wait times a weight gradient's time. Before a forward it
// goes on until there is room for the forward. It returns whether there is room.
func (t *timedList) fill(w int, kind schedule.Kind, ready float64) bool {
	pending := t.stages[w].pending
	for t.weights[w] < t.inputs[w] && ready-t.free[w] > t.wait*t.stages[w].weight {
		t.take(w, schedule.W, t.free[w])
	}
	for kind == schedule.F {
		held := float64(t.forwards[w]) - (1-pending)*float64(t.inputs[w]) - pending*float64(t.weights[w])
		if held+1 <= t.room+1e-9 {
			break
		}
		if t.weights[w] == t.inputs[w] {
			return false
		}
		t.take(w, schedule.W, t.free[w])
	}
	return true
}

// take appends one computation to a worker's list, and advances the worker's times. The computation begins at the time
// `at`.
func (t *timedList) take(w int, kind schedule.Kind, at float64) {
	st, micro := &t.stages[w], 0
	switch kind {
	case schedule.F:
		micro, t.free[w] = t.forwards[w], at+st.forward
		t.forwards[w]++
		t.forwardEnds[w] = append(t.forwardEnds[w], t.free[w])
	case schedule.I:
		micro, t.free[w] = t.inputs[w], at+st.input
		t.inputs[w]++
		t.inputEnds[w] = append(t.inputEnds[w], t.free[w])
	default:
		micro, t.free[w] = t.weights[w], at+st.weight
		t.weights[w]++
	}
	t.lists[w] = append(t.lists[w], schedule.Instruction{Stage: int32(w), Micro: int32(micro), Kind: kind})
}
