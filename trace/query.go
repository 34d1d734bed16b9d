package trace

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Busy returns how long each worker computed between startS and endS, in seconds. Compute events of one worker do not
// overlap, so Busy adds up their lengths.
func (t *Timeline) Busy(startS, endS float64) []float64 {
	return t.busyIn([]window{{startS, endS}})[0]
}

// window is a part of a Timeline's time.
type window struct{ startS, endS float64 }

// busyIn returns Busy for each of several windows, which must be in order and not overlap. It needs one pass over
// the events for any number of windows.
func (t *Timeline) busyIn(windows []window) (busy [][]float64) {
	for range windows {
		busy = append(busy, make([]float64, t.Workers))
	}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Lane != Compute || !IsBusy(e.Kind) {
			continue
		}
		k := sort.Search(len(windows), func(k int) bool { return windows[k].endS > e.StartS })
		for ; k < len(windows) && windows[k].startS < e.EndS; k++ {
			busy[k][e.Worker] += max(0, min(e.EndS, windows[k].endS)-max(e.StartS, windows[k].startS))
		}
	}
	return busy
}

// StepBusy returns how long each worker computed in each step, as [step mark][worker], in seconds. The times come from
// Computed. For steps that Computed lacks, they come from the events. StepBusy reads the events once, for any number of
// steps.
func (t *Timeline) StepBusy() [][]float64 {
	steps := make([][]float64, len(t.Steps))
	at := make(map[int]int, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = make([]float64, t.Workers)
		at[s.Step] = i
	}
	for i := range t.Events {
		e := &t.Events[i]
		if k, marked := at[e.Step]; marked && OfStep(e) {
			steps[k][e.Worker] += e.EndS - e.StartS
		}
	}
	for _, c := range t.Computed {
		if k, marked := at[c.Step]; marked {
			copy(steps[k], c.BusyS)
		}
	}
	return steps
}

// Bubble returns 1 - sum(busy) / (workers x length): the fraction of the workers' time between startS and endS in
// which they did not compute. It is 0 for an empty window.
func (t *Timeline) Bubble(startS, endS float64) float64 {
	if endS <= startS || t.Workers == 0 {
		return 0
	}
	sum := 0.0
	for _, b := range t.Busy(startS, endS) {
		sum += b
	}
	return 1 - sum/(float64(t.Workers)*(endS-startS))
}

// Extent returns when the first event or step begins and when the last one ends.
func (t *Timeline) Extent() (startS, endS float64) {
	first := true
	stretch := func(a, b float64) {
		if first {
			startS, endS, first = a, b, false
		}
		startS, endS = min(startS, a), max(endS, b)
	}
	for i := range t.Events {
		stretch(t.Events[i].StartS, t.Events[i].EndS)
	}
	for _, s := range t.Steps {
		stretch(s.StartS, s.EndS)
	}
	return startS, endS
}

// Settled returns the steps after the first `skip` ones, during which caches and threads warm up. If there are no more
// than `skip` steps, it returns all steps.
func (t *Timeline) Settled(skip int) []StepMark {
	if skip < len(t.Steps) && skip > 0 {
		return t.Steps[skip:]
	}
	return t.Steps
}

// StepTimes returns how long each of the last n steps takes, in seconds. A step's time is counted from its start to its
// end. Steps of a stream overlap, so there it is counted from the end of the step before. The first of several steps is
// then left out.
func (t *Timeline) StepTimes(n int) []float64 {
	steps := t.Steps[max(0, len(t.Steps)-n):]
	var took []float64
	for i, s := range steps {
		switch {
		case !t.Stream || len(steps) == 1:
			took = append(took, s.EndS-s.StartS)
		case i > 0:
			took = append(took, s.EndS-steps[i-1].EndS)
		}
	}
	return took
}

// Nearest returns the settled step whose time is nearest to tookS, and that step's time itsS, in seconds. A long run
// keeps the events of few steps, and a step without events cannot be drawn. So if there are steps with kept events,
// Nearest chooses among these. If the neighbours of some of them are kept too, it chooses among those, since work of a
// neighbour may reach into a step. If two are equally near, Nearest returns the earlier one. ok is false if there is no
// step.
func (t *Timeline) Nearest(skip int, tookS float64) (step StepMark, itsS float64, ok bool) {
	steps, took := t.Settled(skip), t.Took(skip)
	drawn := t.whole(skip)
	for k, s := range steps {
		if (len(drawn) == 0 || drawn[s.Step]) && (!ok || math.Abs(took[k]-tookS) < math.Abs(itsS-tookS)) {
			step, itsS, ok = s, took[k], true
		}
	}
	return step, itsS, ok
}

// whole returns the settled steps for which the events of the step and of both its neighbours are kept. If there is
// none, it returns all settled steps whose events are kept.
func (t *Timeline) whole(skip int) map[int]bool {
	kept, alone, within := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, s := range t.Kept(0) {
		kept[s.Step] = true
	}
	settled := t.Settled(skip)
	first := len(t.Steps) - len(settled)
	for k, s := range settled {
		if !kept[s.Step] {
			continue
		}
		alone[s.Step] = true
		if k += first; (k == 0 || kept[t.Steps[k-1].Step]) && (k+1 == len(t.Steps) || kept[t.Steps[k+1].Step]) {
			within[s.Step] = true
		}
	}
	if len(within) == 0 {
		return alone
	}
	return within
}

// Kept returns the settled steps whose events are in the Timeline.
func (t *Timeline) Kept(skip int) []StepMark {
	has := map[int]bool{}
	for i := range t.Events {
		if e := &t.Events[i]; OfStep(e) {
			has[e.Step] = true
		}
	}
	var out []StepMark
	for _, s := range t.Settled(skip) {
		if has[s.Step] {
			out = append(out, s)
		}
	}
	return out
}

// OfStep reports whether an event is a computation of a training step. An evaluation, which comes after a step, is not.
func OfStep(e *Event) bool {
	return e.Lane == Compute && IsBusy(e.Kind) && e.Kind != "EV"
}

// Mark returns the mark of a step, or an error that says which steps have one.
func (t *Timeline) Mark(step int) (StepMark, error) {
	for _, s := range t.Steps {
		if s.Step == step {
			return s, nil
		}
	}
	if len(t.Steps) == 0 {
		return StepMark{}, fmt.Errorf("trace: step %d: the Timeline marks no steps", StepNumber(step))
	}
	return StepMark{}, fmt.Errorf("trace: step %d is not in the Timeline, which has steps %d to %d", StepNumber(step),
		StepNumber(t.Steps[0].Step), StepNumber(t.Steps[len(t.Steps)-1].Step))
}

// Window returns the part of a Timeline between startS and endS, with times counted from startS. Events that cross its
// edges are cut there, since a worker may begin the next step while another ends this one. Memory starts with what was
// held just before startS. Steps that are not wholly inside are left out, with their busy times, losses and
// evaluations. All other fields, such as peaks and stragglers, are those of the whole Timeline.
func (t *Timeline) Window(startS, endS float64) *Timeline {
	if endS < startS {
		endS = startS
	}
	w := *t
	w.Events, w.Memory, w.Steps, w.Computed, w.Losses, w.Evaluations = nil, nil, nil, nil, nil, nil
	for i := range t.Events {
		e := t.Events[i]
		if e.EndS < startS || e.StartS > endS {
			continue
		}
		// An event that lies outside and only touches the window is left out.
		if e.EndS > e.StartS && (e.EndS == startS || e.StartS == endS) {
			continue
		}
		e.ReadyS, e.StartS, e.EndS = e.ReadyS-startS, max(0, e.StartS-startS), min(e.EndS, endS)-startS
		w.Events = append(w.Events, e)
	}
	w.Memory = t.memoryWindow(startS, endS)
	inside := map[int]bool{}
	for _, s := range t.Steps {
		if s.StartS >= startS && s.EndS <= endS {
			inside[s.Step] = true
			w.Steps = append(w.Steps, StepMark{s.Step, s.StartS - startS, s.EndS - startS})
		}
	}
	for _, c := range t.Computed {
		if inside[c.Step] {
			w.Computed = append(w.Computed, c)
		}
	}
	for _, l := range t.Losses {
		if inside[l.Step] {
			w.Losses = append(w.Losses, l)
		}
	}
	for _, e := range t.Evaluations {
		if inside[e.Step] {
			w.Evaluations = append(w.Evaluations, e)
		}
	}
	return &w
}

func (t *Timeline) memoryWindow(startS, endS float64) []MemorySample {
	held := make([]MemorySample, t.Workers)
	known := make([]bool, t.Workers)
	var inside []MemorySample
	for _, m := range t.Memory {
		switch {
		case m.AtS < startS:
			if !known[m.Worker] || m.AtS-startS >= held[m.Worker].AtS {
				held[m.Worker] = MemorySample{m.Worker, m.AtS - startS, m.Bytes}
				known[m.Worker] = true
			}
		case m.AtS <= endS:
			inside = append(inside, MemorySample{m.Worker, m.AtS - startS, m.Bytes})
		}
	}
	var out []MemorySample
	for w, m := range held {
		if known[w] {
			out = append(out, MemorySample{w, 0, m.Bytes})
		}
	}
	return append(out, inside...)
}

// Step returns one step cut out of a Timeline; see Window.
func (t *Timeline) Step(step int) (*Timeline, error) {
	m, err := t.Mark(step)
	if err != nil {
		return nil, err
	}
	return t.Window(m.StartS, m.EndS), nil
}

// Sort orders events by start, then worker, lane, end and text, and memory samples by time. So the same run gives the
// same file, whichever workers wrote it.
func (t *Timeline) Sort() {
	slices.SortStableFunc(t.Events, func(a, b Event) int {
		switch {
		case a.StartS != b.StartS:
			return compare(a.StartS, b.StartS)
		case a.Worker != b.Worker:
			return a.Worker - b.Worker
		case a.Lane != b.Lane:
			return compare(a.Lane, b.Lane)
		case a.EndS != b.EndS:
			return compare(a.EndS, b.EndS)
		}
		return compare(a.Instruction, b.Instruction)
	})
	slices.SortStableFunc(t.Memory, func(a, b MemorySample) int {
		if a.AtS != b.AtS {
			return compare(a.AtS, b.AtS)
		}
		return a.Worker - b.Worker
	})
}

func compare[T float64 | Lane | string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Merge combines Timelines of the same run, each written by the workers of one process. All parts must use the same
// clock; OnClock converts a Timeline to it. A step runs from the earliest start to the latest end that any part marks.
// Losses and evaluations of a step come from the first part that has them. Events, busy times, memory, peaks, pools and
// rounding are those of all parts. All other fields, such as the workers' places, stragglers, Applied and Seen, come
// from the first part. Merge refuses parts that disagree on version, workers, stages, model or source.
func Merge(parts ...*Timeline) (*Timeline, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("trace: nothing to merge: want at least one Timeline")
	}
	first := parts[0]
	out := *first
	out.Events, out.Memory, out.Steps, out.Computed, out.Losses, out.Evaluations = []Event{}, nil, nil, nil, nil, nil
	out.PeakBytes, out.PeakActivations, out.Pools, out.Rounded = nil, nil, nil, nil
	steps, computed, lossOf, evaluated := map[int]int{}, map[int]int{}, map[int]bool{}, map[int]bool{}
	for i, p := range parts {
		if p.Version != first.Version || p.Source != first.Source || p.Model != first.Model ||
			p.Workers != first.Workers || p.Stages != first.Stages {
			return nil, fmt.Errorf("trace: part %d is of another run: %s of %q with %d workers and %d stages, part 0 is %s "+
				"of %q with %d and %d",
				i, p.Source, p.Model, p.Workers, p.Stages, first.Source, first.Model, first.Workers, first.Stages)
		}
		out.Events = append(out.Events, p.Events...)
		out.Memory = append(out.Memory, p.Memory...)
		for _, pool := range p.Pools {
			if !slices.ContainsFunc(out.Pools, func(q Pool) bool { return slices.Equal(q.Workers, pool.Workers) }) {
				out.Pools = append(out.Pools, pool)
			}
		}
		out.PeakBytes = highest(out.PeakBytes, p.PeakBytes)
		out.PeakActivations = highest(out.PeakActivations, p.PeakActivations)
		out.Rounded = JoinRounded(out.Rounded, p.Rounded)
		for _, s := range p.Steps {
			if k, seen := steps[s.Step]; seen {
				out.Steps[k].StartS = min(out.Steps[k].StartS, s.StartS)
				out.Steps[k].EndS = max(out.Steps[k].EndS, s.EndS)
				continue
			}
			steps[s.Step] = len(out.Steps)
			out.Steps = append(out.Steps, s)
		}
		for _, c := range p.Computed { // each worker is in one part and has 0 in the other parts
			if k, seen := computed[c.Step]; seen {
				out.Computed[k].BusyS = highest(out.Computed[k].BusyS, c.BusyS)
				continue
			}
			computed[c.Step] = len(out.Computed)
			out.Computed = append(out.Computed, c)
		}
		for _, l := range p.Losses {
			if !lossOf[l.Step] {
				lossOf[l.Step] = true
				out.Losses = append(out.Losses, l)
			}
		}
		for _, e := range p.Evaluations {
			if !evaluated[e.Step] {
				evaluated[e.Step] = true
				out.Evaluations = append(out.Evaluations, e)
			}
		}
	}
	slices.SortFunc(out.Steps, func(a, b StepMark) int { return a.Step - b.Step })
	slices.SortFunc(out.Computed, func(a, b Computed) int { return a.Step - b.Step })
	slices.SortFunc(out.Losses, func(a, b Loss) int { return a.Step - b.Step })
	slices.SortFunc(out.Evaluations, func(a, b Evaluation) int { return a.Step - b.Step })
	out.Sort()
	return &out, nil
}

// highest returns the larger of each pair of numbers; missing numbers count as zeros.
func highest[T int | int64 | float64](a, b []T) []T {
	if len(a) < len(b) {
		a = append(slices.Clone(a), make([]T, len(b)-len(a))...)
	}
	out := slices.Clone(a)
	for i, v := range b {
		out[i] = max(out[i], v)
	}
	return out
}
