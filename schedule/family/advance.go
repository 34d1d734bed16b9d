package family

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Advance forward propagation (AvgPipe §4.2, Algorithm 1): 1F1B whose stages run some forwards
// more before their first backward, so that messages are on their way while stages compute. It is
// the 1F1B(K_i) family with other depths, from K_i = S-i, no advance, to AFAB.

// AdvanceRule is what an advance of x forwards on the first stage is on the others.
type AdvanceRule string

const (
	// Graded is ceil(x (S-1-i)/(S-1)) on stage i of S, counted from 0: all of it on the first
	// and none on the last, which has nobody to wait for. Where messages are slow the extra that
	// hides them is a few micro-batches in all.
	Graded AdvanceRule = "graded"
	// Printed is x on every stage: what each GPU does when it runs Algorithm 1 for itself with
	// its own K-k in place of K-1. Its deepest is AFAB.
	Printed AdvanceRule = "printed"
)

// AdvanceRules lists them.
func AdvanceRules() []AdvanceRule { return []AdvanceRule{Graded, Printed} }

// depths is K_i by stage for an advance, before clamping to M.
func depths(stages, advance int, rule AdvanceRule) []int {
	k := make([]int, stages)
	for i := range k {
		behind := stages - 1 - i
		extra := advance
		if rule == Graded && stages > 1 {
			extra = (advance*behind + stages - 2) / (stages - 1)
		}
		k[i] = behind + 1 + extra
	}
	return k
}

// AdvanceDepths is the depths K_i of S stages, clamped to M. The first stage has so many forwards in advance of
// 1F1B. Algorithm 1's advance_num is K_0 - 1.
func AdvanceDepths(stages, microBatches, advance int, rule AdvanceRule) ([]int, error) {
	if stages < 1 || microBatches < 1 || advance < 0 || advance > schedule.MaxMicro || stages > schedule.MaxStage {
		return nil, fmt.Errorf("schedule: an advance of %d on %d stages with %d micro-batches; there must be a "+
			"stage and a micro-batch, and the advance is 0 or more", advance, stages, microBatches)
	}
	if rule = cmp.Or(rule, Graded); !slices.Contains(AdvanceRules(), rule) {
		return nil, fmt.Errorf("schedule: advance rule %q; there are %q", rule, AdvanceRules())
	}
	k := depths(stages, advance, rule)
	for i := range k {
		k[i] = min(k[i], microBatches)
	}
	return k, nil
}

// Advance adapts the depths while training goes on (Algorithm 1): one advance more after each
// iteration, or each few of the same depths, while steps get faster and memory lasts, then it
// stays. It knows no clock and no Program; a run asks it at a boundary between Programs.
//
// Unlike the printed algorithm it drains the last backwards (the order it sets depths for
// does), never goes beyond M, and goes back to the fastest depths it has seen once it stops;
// and it looks Patience advances further before it does: one message that just misses its turn
// makes a single slower step no reason to stop.
type Advance struct {
	Stages, MicroBatches int
	Rule                 AdvanceRule // "" is Graded
	Patience             int         // advances without a faster step before it settles; 0 is 1
	MinGain              float64     // part of a step's time that counts as faster; below 0 is refused

	now, best int
	bestS     float64
	tried     bool
	waited    int
	settled   bool
}

// Depths is K_i for the steps to come.
func (a *Advance) Depths() ([]int, error) {
	if !(a.MinGain >= 0 && a.MinGain < 1) || a.Patience < 0 {
		return nil, fmt.Errorf("schedule: advance: a gain of %v of a step and %d advances without one; the first "+
			"is 0 to below 1, the second 0 or more", a.MinGain, a.Patience)
	}
	return AdvanceDepths(a.Stages, a.MicroBatches, a.now, a.Rule)
}

// Deeper is K_i with one advance more, for a caller that wants to know whether memory lasts;
// nil where all there is is in advance already.
func (a *Advance) Deeper() []int {
	k, err := AdvanceDepths(a.Stages, a.MicroBatches, a.now, a.Rule)
	if err != nil {
		return nil
	}
	for more := a.now + 1; more <= a.now+a.Stages; more++ {
		deeper, err := AdvanceDepths(a.Stages, a.MicroBatches, more, a.Rule)
		if err == nil && !slices.Equal(deeper, k) {
			return deeper
		}
	}
	return nil
}

// Next takes the time of a step with the present depths, in seconds, and gives those of the next steps. The time is
// a median where steps vary; memoryFits says whether there is memory for Deeper. settled says that the depths are
// final.
func (a *Advance) Next(stepSeconds float64, memoryFits bool) (k []int, settled bool) {
	if !a.settled {
		a.observe(stepSeconds, memoryFits)
	}
	k, err := a.Depths()
	if err != nil {
		return nil, true
	}
	return k, a.settled
}

func (a *Advance) observe(stepSeconds float64, memoryFits bool) {
	if !a.tried || stepSeconds < a.bestS*(1-a.MinGain) {
		a.best, a.bestS, a.tried, a.waited = a.now, stepSeconds, true, 0
	} else {
		a.waited++
	}
	if a.waited >= max(1, a.Patience) || !memoryFits || a.Deeper() == nil {
		a.now, a.settled = a.best, true
		return
	}
	a.now++
}
