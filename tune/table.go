package tune

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim/memory"
)

// table is sums over runs of layers on one device type at one number of rows: what a stage
// of layers from..to-1 costs is one subtraction.
type table struct {
	*memory.Sums
	forward, backward, update []float64 // seconds
}

func (t *table) time(from, to int, again plan.Recompute) (forward, backward float64) {
	forward, backward = t.forward[to]-t.forward[from], t.backward[to]-t.backward[from]
	if again.Again() {
		backward += forward
	}
	return forward, backward
}

// tables makes and keeps the tables of a profile. A nil table is a size that the profile
// has no costs for.
type tables struct {
	p    *profile.Profile
	have map[tableKey]*table
}

type tableKey struct {
	device string
	rows   int
}

func newTables(p *profile.Profile) *tables {
	return &tables{p: p, have: map[tableKey]*table{}}
}

func (t *tables) of(device string, rows int) *table {
	key := tableKey{device, rows}
	if made, ok := t.have[key]; ok {
		return made
	}
	t.have[key] = t.make(device, rows)
	return t.have[key]
}

func (t *tables) make(device string, rows int) *table {
	costs, _, err := t.p.At(device, rows)
	if err != nil {
		return nil
	}
	n := len(costs)
	out := &table{
		Sums: memory.SumsOf(t.p, costs), forward: make([]float64, n+1), backward: make([]float64, n+1),
		update: make([]float64, n+1),
	}
	for k := range costs {
		out.forward[k+1] = out.forward[k] + costs[k].ForwardS
		out.backward[k+1] = out.backward[k] + costs[k].BackwardS
		out.update[k+1] = out.update[k] + t.p.Layers[k].UpdateS
	}
	return out
}
