// Package roles finds families of schedules and weight policies by what they can do.
//
// In: the registry of package schedule. Out: the family that plays a part in a search. tune and
// its packages ask here, so that none of them knows a family or a policy by its name.
//
// Refused: nothing; a part that nobody plays is a bug of the registry, and panics.
package roles

import (
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // that are asked for what they do
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Pipelines is the family that takes any depths K_i which do not grow from stage to stage.
func Pipelines() family.Family {
	return first("takes any depths of its stages", func(f family.Family) bool {
		return f.IsGeneral() &&
			f.Warmup != nil && f.AdmitsPolicy(schedule.Sync)
	})
}

// Undivided is the family that has the whole model on each of any number of workers.
func Undivided() family.Family {
	return first("has the whole model on every worker", func(f family.Family) bool { return f.IsGeneral() && f.Undivided })
}

// WholeModel says whether a family's plans are Undivided's, or some of them.
func WholeModel(f family.Family) bool { return f.Undivided && f.General == Undivided().Name }

// SeveralStages says whether a worker holds more than one stage of a family, or may.
func SeveralStages(f family.Family) bool { return f.Chunks != 0 && f.Chunks != 1 }

// Interleaving is the family in which the chunks of a worker, of whatever number, take turns: it holds less than all
// micro-batches of a step.
func Interleaving() family.Family { return interleaving() }

// interleaving is found once: it writes Programs, and sweeps ask for each of thousands of shapes.
var interleaving = sync.OnceValue(func() family.Family {
	const workers, chunks, micros = 2, 2, 8
	return first("has any number of chunks take turns", func(f family.Family) bool {
		if f.Chunks >= 0 || f.Beside {
			return false
		}
		p, err := family.Generate(f.Name, schedule.Settings{Placement: f.Placement(workers, chunks), MicroBatches: micros})
		if err != nil {
			return false
		}
		held, err := check.Check(p)
		return err == nil && slices.Max(held.PeakActivations) < chunks*micros
	})
})

// WithSeveralStages names the families in which a worker holds, or may hold, several stages.
func WithSeveralStages() (names []string) {
	for _, f := range family.All() {
		if SeveralStages(f) {
			names = append(names, f.Name)
		}
	}
	return names
}

// Averaging is the weight policy of pipelines with weights of their own, and the family that keeps it.
func Averaging() (family.Family, schedule.Policy) {
	all := schedule.Policies()
	w := all[slices.IndexFunc(all, schedule.Policy.Averages)]
	return first("averages pipelines of any depths", func(f family.Family) bool {
		return f.Warmup != nil &&
			f.AdmitsPolicy(w)
	}), w
}

// Serving is the weight policy of workers that fetch their weights from one that holds them.
func Serving() schedule.Policy {
	all := schedule.Policies()
	return all[slices.IndexFunc(all, schedule.Policy.Served)]
}

// Partitioner is the planner of stages for pipelines that average.
func Partitioner() plan.Planner {
	all := plan.Planners()
	i := slices.IndexFunc(all, func(p plan.Planner) bool { return p.Averages })
	if i < 0 {
		panic("tune: no planner cuts stages for pipelines that average")
	}
	return all[i]
}

// PoliciesOf are the weight policies that a family can keep, in its own order.
func PoliciesOf(f family.Family) []schedule.Policy {
	if len(f.Policies) == 0 {
		return []schedule.Policy{schedule.Sync}
	}
	return f.Policies
}

// first is the first family of the registry that does something.
func first(does string, is func(family.Family) bool) family.Family {
	all := family.All()
	i := slices.IndexFunc(all, is)
	if i < 0 {
		panic("tune: no schedule " + does)
	}
	return all[i]
}
