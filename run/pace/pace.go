// Package pace distinguishes a straggler from a machine that is slower as a whole.
//
// Input: how long each worker should compute in a step, by its profile, and then step by step how long it did. Output:
// Changes. A Change says that a worker has become a straggler, or has stopped being one. While it remains one, it is
// reported again each time as many steps have passed as it took to become one. If the lower quartile of all workers is
// too slow by itself, the machine is slower as a whole; that is reported once. The package reads no clock. It does not
// look at evaluations and checkpoints.
//
// A worker is a straggler if it has been too slow for at least Steps steps in a row, which take at least LeastS by the
// profile. Too slow means that its time exceeds its profile by more than the factor Slower. It must also exceed, by
// more than this factor, the time at the pace of the others. Their pace is the lower quartile of all workers. So even
// most workers may be stragglers, for instance on one loaded host, while a load that slows all workers makes no
// stragglers. Steps are examined in groups in which every worker computes its share. If replicas take turns, a worker
// computes nothing in one step and twice as much in another.
package pace

import (
	"math"
	"slices"
)

// These constants say how slow a straggler is and for how long.
const (
	Slower = 1.25
	Steps  = 20
	LeastS = 0.25 // seconds: if steps are very short, twenty slow ones may be a brief disturbance
)

// Change is a change that a step has shown.
type Change struct {
	Worker   int     // the worker's number, or All
	Over     bool    // the worker is not a straggler any more
	Still    bool    // the worker was a straggler already; Times and Others cover the steps since the last Change
	Times    float64 // compute time from step From to step To, as a multiple of its profile
	Others   float64 // the lower quartile of all workers' multiples: the pace of the others
	Slow     int     // number of workers whose compute time exceeds their profile by more than the factor Slower
	From     int     // the first step that Times covers; To is the last
	To       int
	BusyS    float64 // compute time per step; BusyS and ProfileS are 0 for All
	ProfileS float64
}

// All is the value of Change.Worker if the lower quartile of all workers is too slow by itself.
const All = -1

// Watch examines the workers of a run.
type Watch struct {
	profileS []float64 // profiled compute time of a step, by worker
	group    int       // steps per group
	need     int       // slow groups in a row that make a straggler

	n     int       // steps in the current group
	first int       // the group's first step
	busyS []float64 // by worker, within the group

	workers []state
	alike   state // of the lower quartile, as if it were a worker
	told    bool  // a change with All was returned
}

// state says for how many groups in a row a worker has been slow, or has not been slow.
type state struct {
	slow, fine int // slow groups, or groups that are not slow, in a row
	from       int // the first step of these groups
	busyS      float64
	times      float64 // a sum over these groups, as are busyS and others
	others     float64
	named      bool
}

// New returns a Watch for workers with these compute times per step. In any `group` steps in a row each worker computes
// its share of the work. A worker whose time is 0 is ignored.
func New(profileS []float64, group int) *Watch {
	group = max(group, 1)
	steps := Steps
	if len(profileS) > 0 {
		steps = int(max(Steps, math.Ceil(LeastS/max(slices.Max(profileS), 1e-6))))
	}
	return &Watch{profileS: slices.Clone(profileS), group: group, need: (steps + group - 1) / group,
		busyS: make([]float64, len(profileS)), workers: make([]state, len(profileS))}
}

// Step records how long each worker computed in a step, and returns the Changes that the step has shown.
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

// look adds a group of steps to the state; `slow` says whether the worker was slow in the group.
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
	if s.slow+s.fine < w.need || !s.named && !slow {
		return Change{}, false
	}
	n := float64(s.slow + s.fine)
	c := Change{Worker: worker, Over: !slow, Still: s.named && slow, Times: s.times / n, Others: s.others / n,
		From: s.from, BusyS: s.busyS / (n * float64(w.group))}
	*s = state{named: slow} // the next Change averages only later groups
	return c, true
}
