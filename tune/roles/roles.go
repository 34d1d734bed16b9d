// Package roles finds families of schedules and weight policies by their abilities.
//
// Input: the families of schedule/family, the policies of package schedule and the planners of package plan. Output:
// the family, policy or planner for a role in a search. tune and its packages use roles. So their code contains the
// name of no family, and of only one policy: schedule.Sync.
//
// There are no errors. A role without a family is a bug of the registry, and panics.
package roles

import (
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // for lookup by ability
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Pipelines returns the family that takes any depths K_i. No stage may have a larger depth than the stage before it.
func Pipelines() family.Family {
	return first("takes any depths of its stages", func(f family.Family) bool {
		return f.IsGeneral() &&
			f.Warmup != nil && f.AdmitsPolicy(schedule.Sync)
	})
}

// Undivided returns the family in which every worker has the whole model, with any number of workers.
func Undivided() family.Family {
	return first("has the whole model on every worker", func(f family.Family) bool { return f.IsGeneral() && f.Undivided })
}

// WholeModel says whether each plan of a family is also a plan of Undivided.
func WholeModel(f family.Family) bool { return f.Undivided && f.General == Undivided().Name }

// SeveralStages says whether a worker of a family has, or may have, more than one stage.
func SeveralStages(f family.Family) bool { return f.Chunks != 0 && f.Chunks != 1 }

// Interleaving returns the family in which any number of a worker's chunks take turns. In it, a worker does not hold
// the activations of all micro-batches of a step at once.
func Interleaving() family.Family { return interleaving() }

// interleaving is computed once, because it generates Programs and sweeps need it for thousands of shapes.
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

// WithSeveralStages returns the names of the families in which a worker has, or may have, several stages.
func WithSeveralStages() (names []string) {
	for _, f := range family.All() {
		if SeveralStages(f) {
			names = append(names, f.Name)
		}
	}
	return names
}

// Averaging returns the weight policy of pipelines with their own weights, and its family.
func Averaging() (family.Family, schedule.Policy) {
	all := schedule.Policies()
	w := all[slices.IndexFunc(all, schedule.Policy.Averages)]
	return first("averages pipelines of any depths", func(f family.Family) bool {
		return f.Warmup != nil &&
			f.AdmitsPolicy(w)
	}), w
}

// Serving returns the weight policy of workers that fetch their weights from a server.
func Serving() schedule.Policy {
	all := schedule.Policies()
	return all[slices.IndexFunc(all, schedule.Policy.Served)]
}

// Partitioner returns the planner that cuts stages for averaging pipelines.
func Partitioner() plan.Planner {
	all := plan.Planners()
	i := slices.IndexFunc(all, func(p plan.Planner) bool { return p.Averages })
	if i < 0 {
		panic("tune: no planner cuts stages for pipelines that average")
	}
	return all[i]
}

// PoliciesOf returns the weight policies that a family supports, in its own order.
func PoliciesOf(f family.Family) []schedule.Policy {
	if len(f.Policies) == 0 {
		return []schedule.Policy{schedule.Sync}
	}
	return f.Policies
}

// first returns the first family of the registry with a property.
func first(does string, is func(family.Family) bool) family.Family {
	all := family.All()
	i := slices.IndexFunc(all, is)
	if i < 0 {
		panic("tune: no schedule " + does)
	}
	return all[i]
}
