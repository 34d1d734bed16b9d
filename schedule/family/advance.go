package family

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Advance forward propagation (AvgPipe §4.2, Algorithm 1) is 1F1B with more forwards before each stage's first
// backward. Messages are then in flight while stages compute. It is the 1F1B(K_i) family with other depths. With S
// stages and M micro-batches, K_i of stage i is from S-i (no advance) to M (AFAB).

// AdvanceRule says how an advance of x forwards on the first stage translates to the other stages.
type AdvanceRule string

const (
	// Graded is ceil(x (S-1-i)/(S-1)) on stage i of S, counted from 0. The first stage gets the whole advance, and the
	// last gets none, since it waits for no later stage. A few extra micro-batches over all stages are enough to hide
	// slow messages.
	Graded AdvanceRule = "graded"
	// Printed is x on every stage. It results if each GPU k of K runs Algorithm 1 for itself, with its own K-k in place
	// of K-1. At its deepest it is AFAB.
	Printed AdvanceRule = "printed"
)

// AdvanceRules lists the rules.
func AdvanceRules() []AdvanceRule { return []AdvanceRule{Graded, Printed} }

// depths returns the depths K_i of all stages for an advance, before they are limited to the number of micro-batches.
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

// AdvanceDepths returns the depths K_i of all stages, each at most microBatches. The first stage runs `advance` more
// forwards than in 1F1B. Algorithm 1's advance_num is K_0 - 1.
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

// Advance adapts the depths during training (Algorithm 1). After each iteration, or after every few iterations with the
// same depths, it adds one to the advance, as long as steps get faster and memory lasts. Then it keeps the fastest
// depths. It knows no clock and no Program; a run calls it at a boundary between Programs.
//
// It differs from the printed algorithm in four ways. A step ends with the remaining backwards, as in the order whose
// depths Advance sets. The advance never exceeds the number of micro-batches. When Advance stops, it returns to the
// fastest depths so far. If steps do not get faster, it stops only after Patience such additions in a row, since one
// message that just misses its turn can make a single step slower.
type Advance struct {
	Stages, MicroBatches int
	Rule                 AdvanceRule // "" means Graded
	Patience             int         // advances without a faster step before it stops; 0 means 1
	MinGain              float64     // fraction of a step's time that counts as faster, from 0 to below 1

	now, best int
	bestS     float64
	tried     bool
	waited    int
	settled   bool
}

// Depths returns the depths K_i for the next steps.
func (a *Advance) Depths() ([]int, error) {
	if !(a.MinGain >= 0 && a.MinGain < 1) || a.Patience < 0 {
		return nil, fmt.Errorf("schedule: advance: a gain of %v of a step and %d advances without one; the first "+
			"is 0 to below 1, the second 0 or more", a.MinGain, a.Patience)
	}
	return AdvanceDepths(a.Stages, a.MicroBatches, a.now, a.Rule)
}

// Deeper returns the next greater depths K_i, so that a caller can check the memory. It returns nil if there are none.
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

// Next takes the time of a step with the present depths, in seconds, and returns the next depths. If steps vary, pass
// their median. memoryFits says whether Deeper fits in memory. `settled` is true once the depths are final. With
// invalid settings, Next returns nil and true.
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
