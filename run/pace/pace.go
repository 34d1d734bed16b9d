// Package pace tells a straggler from a machine that is slower as a whole.
//
// In: how long each worker is to compute in a step, by its profile, and then step by step how long it did. Out: what
// has changed: that a worker is a straggler, or is none any more, and once that the workers are slower alike. It
// reads no clock. What is of no step, evaluations and checkpoints, is none of its business.
//
// A straggler computes for at least Steps steps in a row, which are to take LeastS at least, more than Slower
// times what its profile says, and more than Slower times what it would if it were as slow as the others. How
// slow these are is the lower quartile of all: with it most workers may be stragglers, those of a host that
// has more of them than the rest for instance, and a load that slows all alike makes none. Steps are looked
// at in groups in which every worker computes its share: where replicas take turns, a worker computes nothing
// in one step and twice as much in another.
package pace

import (
	"math"
	"slices"
)

// How much slower for how long a straggler is.
const (
	Slower = 1.25
	Steps  = 20
	LeastS = 0.25 // seconds: of steps that are over in no time twenty are a hiccup of the machine
)

// Change is what a step has shown.
type Change struct {
	Worker   int     // All: the workers alike
	Over     bool    // it is no straggler any more
	Times    float64 // how long it took, as a multiple of its profile, since From
	Others   float64 // the same of the others: the lower quartile of all
	Slow     int     // of all workers those that are slower than their profiles
	From     int     // steps
	To       int
	BusyS    float64 // what it computed in a step
	ProfileS float64
}

// All stands for a worker where the workers are slower alike.
const All = -1

// Watch looks at the workers of a run.
type Watch struct {
	profileS []float64 // by worker, of one step
	group    int       // steps
	need     int       // groups in a row

	n     int       // steps in the group under way
	first int       // the first of them
	busyS []float64 // by worker, in it

	workers []state
	alike   state // of the lower quartile
	told    bool  // that they are slower alike
}

// state is how long a worker has been what it is.
type state struct {
	slow, fine int // groups in a row
	from       int // the first step of these
	busyS      float64
	times      float64 // summed, as are those of the others
	others     float64
	named      bool
}

// New watches workers that are to compute so long in a step. Each has its share of the work in any so many steps in
// a row; a worker that has none is not looked at.
func New(profileS []float64, group int) *Watch {
	group = max(group, 1)
	steps := Steps
	if len(profileS) > 0 {
		steps = int(max(Steps, math.Ceil(LeastS/max(slices.Max(profileS), 1e-6))))
	}
	return &Watch{profileS: slices.Clone(profileS), group: group, need: (steps + group - 1) / group,
		busyS: make([]float64, len(profileS)), workers: make([]state, len(profileS))}
}

// Step takes how long each worker has computed in a step, and says what that changes.
func (w *Watch) Step(step int, busyS []float64) []Change {
	if w.n == 0 {
		w.first = step
	}
	for k, s := range busyS {
		w.busyS[k] += s
	}
	if w.n++; w.n < w.group {
		return nil
	}
	var times []float64
	for k, s := range w.profileS {
		if s > 0 {
			times = append(times, w.busyS[k]/(s*float64(w.group)))
		}
	}
	if len(times) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(times))
	others := sorted[(len(sorted)-1)/4]
	slow := 0
	for _, t := range sorted {
		if t > Slower {
			slow++
		}
	}
	var all []Change
	for k, s := range w.profileS {
		if s <= 0 {
			continue
		}
		t := times[0]
		times = times[1:]
		if c, changed := w.workers[k].look(w, k, t > Slower*max(1, others), t, others, w.busyS[k]); changed {
			c.ProfileS, c.To, c.Slow = s, step, slow
			all = append(all, c)
		}
	}
	if c, changed := w.alike.look(w, All, others > Slower, others, others, 0); changed && !c.Over && !w.told {
		w.told = true
		c.To, c.Slow = step, slow
		all = append(all, c)
	}
	w.n = 0
	clear(w.busyS)
	return all
}

// look takes a group in which a worker was slow or not.
func (s *state) look(w *Watch, worker int, slow bool, times, others, busyS float64) (Change, bool) {
	if slow != (s.slow > 0) || s.slow+s.fine == 0 {
		*s = state{from: w.first, named: s.named}
	}
	if slow {
		s.slow++
	} else {
		s.fine++
	}
	s.times, s.others, s.busyS = s.times+times, s.others+others, s.busyS+busyS
	if s.slow+s.fine < w.need || s.named == slow {
		return Change{}, false
	}
	s.named = slow
	n := float64(s.slow + s.fine)
	return Change{Worker: worker, Over: !slow, Times: s.times / n, Others: s.others / n, From: s.from,
		BusyS: s.busyS / (n * float64(w.group))}, true
}
