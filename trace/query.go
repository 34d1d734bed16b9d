package trace

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Busy is how long each worker computed between startS and endS, by worker, in
// seconds. Compute events of one worker do not overlap, so it is a sum.
func (t *Timeline) Busy(startS, endS float64) []float64 {
	return t.busyIn([]window{{startS, endS}})[0]
}

// window is a part of a Timeline's time.
type window struct{ startS, endS float64 }

// busyIn is Busy of windows, none of which begins before the one in front of it has ended. It is one pass over the
// events however many windows there are.
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

// StepBusy is how long each worker computed in each step, [step mark][worker], in seconds. It is from Computed, else
// from events; zeros for a step that has neither. It is one pass over the events however many steps there are.
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

// Bubble is 1 - sum(busy) / (workers x length): the part of the workers' time between
// startS and endS in which they did not compute. 0 for an empty window.
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

// Extent is when the first event or step begins and the last one ends.
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

// Settled is the steps after the first skip ones, whose caches and threads are warm.
// A Timeline with no more than skip steps gives all it has.
func (t *Timeline) Settled(skip int) []StepMark {
	if skip < len(t.Steps) && skip > 0 {
		return t.Steps[skip:]
	}
	return t.Steps
}

// StepTimes is what each of the last n steps takes, in seconds: from its start to its end, or
// in a stream, whose steps overlap, from the end of the step before it, which leaves out the
// first of several.
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

// Nearest is the settled step with kept events whose time is nearest to the given one, in seconds. A long run keeps
// the events of few steps, and a step without events cannot be drawn. Of two equally near it is the earlier; false
// where no step is marked.
func (t *Timeline) Nearest(skip int, tookS float64) (step StepMark, itsS float64, ok bool) {
	steps, took := t.Settled(skip), t.Took(skip)
	kept := map[int]bool{}
	for _, s := range t.Kept(skip) {
		kept[s.Step] = true
	}
	for k, s := range steps {
		if drawn := len(kept) == 0 || kept[s.Step]; drawn && (!ok || math.Abs(took[k]-tookS) < math.Abs(itsS-tookS)) {
			step, itsS, ok = s, took[k], true
		}
	}
	return step, itsS, ok
}

// Kept is the settled steps whose events are in the Timeline.
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

// OfStep says whether an event is computing that belongs to a training step: an
// evaluation is after one.
func OfStep(e *Event) bool {
	return e.Lane == Compute && IsBusy(e.Kind) && e.Kind != "EV"
}

// Mark is the mark of a step.
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

// Window is the part of a Timeline between startS and endS, with times counted from
// startS. Events that reach out of it are cut at its edges (a worker may begin the next step
// while another ends this one), memory starts with what was held just before startS, and
// peaks are those of the whole Timeline, as are stragglers. Losses and evaluations of steps that end outside are
// left out.
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
		// What only touches the window from outside has no part in it.
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

// Step is one step cut out of a Timeline; see Window.
func (t *Timeline) Step(step int) (*Timeline, error) {
	m, err := t.Mark(step)
	if err != nil {
		return nil, err
	}
	return t.Window(m.StartS, m.EndS), nil
}

// Sort puts events in order of start, then worker, lane, end and text, and memory samples in order of time. The same
// run written by several workers then gives the same file.
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

// Merge puts Timelines of the same run into one: each part was written by the workers
// of one process, on the same clock (OnClock puts a part there first where it was not).
// A step runs from the earliest start to the latest end that any part marks; losses and
// evaluations are taken from the first part that has them for a step.
// Where workers are, and who was a straggler, the first part says for all.
// It refuses parts that disagree on workers, stages, model or source.
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
		for _, c := range p.Computed { // a worker is in one part, and 0 in the others
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

// highest is the larger of each pair; a missing list counts as zeros.
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
