package schedule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
)

// Settings is the input of a family.
type Settings struct {
	Placement    [][]int          // stage -> workers, by replica
	MicroBatches int              // number of micro-batches in one step (M)
	Warmup       []int            // K_i by stage; nil lets the family choose
	Recompute    []plan.Recompute // by stage; nil: nothing is recomputed
	Replication  Replication
	Weights      Policy // "" means the first policy that the family lists
	Repeat       int    // number of steps; 0 means 1
	// Elastic describes the pipelines of family elastic; nil lets the family choose.
	Elastic *plan.Elastic
	// Staleness is how many minibatches a trainer of family asp may be ahead of the slowest; nil means any number.
	Staleness *int
	// Idle allows workers without a stage, in Programs that do not train.
	Idle bool
}

// Checked fills in defaults and refuses settings that no family can use.
func (s Settings) Checked() (Settings, error) {
	stages := len(s.Placement)
	if stages == 0 {
		return s, fmt.Errorf("there are no stages; give each its workers")
	}
	if stages > MaxStage {
		return s, fmt.Errorf("%d stages; there can be %d", stages, MaxStage)
	}
	if s.MicroBatches < 1 || s.MicroBatches > MaxMicro {
		return s, fmt.Errorf("%d micro-batches; give 1 to %d", s.MicroBatches, MaxMicro)
	}
	used := make([]bool, min(s.Workers(), MaxWorkers))
	for i, on := range s.Placement {
		if len(on) == 0 {
			return s, fmt.Errorf("stage %d is on no worker", i)
		}
		if len(on) > MaxReplica {
			return s, fmt.Errorf("stage %d has %d replicas; there can be %d", i, len(on), MaxReplica)
		}
		for _, w := range on {
			if w < 0 || w >= MaxWorkers {
				return s, fmt.Errorf("stage %d is on worker %d; there can be %d workers, counted from 0", i, w,
					MaxWorkers)
			}
			used[w] = true
		}
	}
	if idle := slices.Index(used, false); idle >= 0 && !s.Idle {
		return s, fmt.Errorf("worker %d has no stage; workers count from 0 without gaps", idle)
	}
	if s.Warmup != nil && len(s.Warmup) != stages {
		return s, fmt.Errorf("%d warm-up depths for %d stages; give one for each", len(s.Warmup), stages)
	}
	if s.Recompute == nil {
		s.Recompute = make([]plan.Recompute, stages)
	} else if len(s.Recompute) != stages {
		return s, fmt.Errorf("%d recompute settings for %d stages; give one for each", len(s.Recompute), stages)
	}
	if s.Replication == "" {
		s.Replication = RoundRobin
	}
	if s.Replication != Split && s.Replication != RoundRobin {
		return s, fmt.Errorf("replication %q; it is %q or %q", s.Replication, Split, RoundRobin)
	}
	if s.Repeat == 0 {
		s.Repeat = 1
	}
	if s.Repeat < 0 || s.Repeat > MaxMicro/s.MicroBatches {
		return s, fmt.Errorf("%d steps of %d micro-batches; there can be 1 to %d micro-batches in all", s.Repeat,
			s.MicroBatches, MaxMicro)
	}
	return s, s.Sized()
}

// Program returns an empty Program for these settings.
func (s Settings) Program() *Program {
	workers := s.Workers()
	return &Program{
		Stages: len(s.Placement), Workers: workers, Placement: [][][]int{s.Placement}, Replication: s.Replication,
		MicroBatches: s.MicroBatches, Period: 1, Repeat: s.Repeat, Weights: cmp.Or(s.Weights, Sync),
		Recompute: s.Recompute,
		Body:      make(Part, workers),
	}
}

// FromPlan returns the family of a plan's schedule and its settings. The plan's devices, in ascending order, are
// workers 0, 1 and so on.
func FromPlan(p *plan.Plan) (name string, s Settings) {
	devices := p.Devices()
	s = Settings{MicroBatches: p.MicroBatches, Replication: Replication(p.Replication), Weights: Policy(p.Weights),
		Elastic: p.Elastic, Staleness: p.Staleness}
	warm := false
	for _, st := range p.Stages {
		on := make([]int, len(st.Devices))
		for i, d := range st.Devices {
			on[i], _ = slices.BinarySearch(devices, d)
		}
		s.Placement = append(s.Placement, on)
		s.Recompute = append(s.Recompute, st.Recompute)
		s.Warmup = append(s.Warmup, st.Warmup)
		warm = warm || st.Warmup != 0
	}
	if !warm { // if only some stages have depths, the family refuses them
		s.Warmup = nil
	}
	return p.Schedule, s
}

// Sized refuses settings for which a step has more than MaxInstructions, counted with whole backwards. Each micro-batch
// has a forward and a backward on every stage, or under Split on every replica. With elastic averaging it has these in
// every pipeline.
func (s Settings) Sized() error {
	visits := int64(0)
	for _, on := range s.Placement {
		if s.Replication == Split {
			visits += int64(len(on))
		} else {
			visits++
		}
	}
	most := MaxInstructions / (2 * max(1, visits))
	if s.Elastic != nil {
		most /= int64(max(1, s.Elastic.Pipelines))
	}
	if int64(s.MicroBatches) > most {
		return fmt.Errorf("%d micro-batches through %d stages; a program can have %d instructions, which is %d "+
			"micro-batches here", s.MicroBatches, len(s.Placement), MaxInstructions, most)
	}
	return nil
}

// Workers returns 1 + the highest worker of a placement; workers over MaxWorkers count as MaxWorkers.
func (s Settings) Workers() int {
	last := -1
	for _, on := range s.Placement {
		for _, w := range on {
			last = max(last, min(w, MaxWorkers))
		}
	}
	return last + 1
}
