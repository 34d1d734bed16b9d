package tune

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/sim/memory"
)

// table holds prefix sums over layers on one device type at one number of rows. The cost of a stage of layers
// from..to-1 is then one subtraction.
type table struct {
	*memory.Sums
	forward, backward, update []float64 // seconds
	feed                      []float64 // copying model inputs before forwards
	// `bare` is the time of forwards that keep nothing, minus that of plain forwards. `again` is the time of backwards
	// with recompute, minus that of a forward plus a backward.
	bare, again []float64
	// bareBlocks and againBlocks are what recomputed blocks add to forwards and to backwards.
	bareBlocks, againBlocks []float64
	halves                  []float64 // both halves of backwards, minus the whole
	// `crosses` has the bytes that cross the cut before each layer in the boundary's format. `packs` has the times to
	// write that format, and `unpacks` the times to read it. All three are for activations; gradients are assumed to
	// have the same size.
	crosses        []int64
	packs, unpacks []float64
}

// packing returns the time that packing adds to a stage's forward and backward of one micro-batch.
func (t *table) packing(from, to int) (forward, backward float64) {
	if t.packs == nil {
		return 0, 0
	}
	return t.unpacks[from] + t.packs[to], t.unpacks[to] + t.packs[from]
}

// time returns a stage's forward and backward of one micro-batch, as sim.CostsOf computes them.
func (t *table) time(from, to int, again plan.Recompute) (forward, backward float64) {
	forward, backward = span(t.forward, from, to), span(t.backward, from, to)
	switch {
	case again == plan.Blocks:
		backward += span(t.againBlocks, from, to)
		forward += span(t.bareBlocks, from, to)
	case again == plan.Selective: // included in the profile of the space
	case again.Again():
		backward += forward + span(t.again, from, to)
		forward += span(t.bare, from, to)
	}
	return forward + span(t.feed, from, to), backward
}

// least returns the least compute time of a micro-batch in a stage, with a whole backward or with its two halves.
func (t *table) least(from, to int, again plan.Recompute) float64 {
	forward, backward := t.time(from, to, again)
	return forward + backward + min(0, span(t.halves, from, to))
}

// span returns the sum over layers from..to-1, given the prefix sums.
func span(sums []float64, from, to int) float64 { return sums[to] - sums[from] }

// tables caches the tables of a profile. A nil table means that the size has no costs.
type tables struct {
	p, packed *profile.Profile // packed has the bytes in the boundary's format
	c         *cluster.Cluster
	boundary  packing.Format
	have      map[tableKey]*table
}

type tableKey struct {
	device string
	rows   int
}

func newTables(p *profile.Profile, c *cluster.Cluster, boundary packing.Format) *tables {
	return &tables{p: p, packed: p.Packed(boundary), c: c, boundary: boundary, have: map[tableKey]*table{}}
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
	sums := func(of func(k int) float64) []float64 {
		out := make([]float64, len(costs)+1)
		for k := range costs {
			out[k+1] = out[k] + of(k)
		}
		return out
	}
	out := &table{
		Sums:     memory.SumsOf(t.p, costs),
		forward:  sums(func(k int) float64 { return costs[k].ForwardS }),
		backward: sums(func(k int) float64 { return costs[k].BackwardS }),
		update:   sums(func(k int) float64 { return t.p.Layers[k].UpdatesOn(device).UpdateS }),
		feed:     sums(func(k int) float64 { return costs[k].FeedS }),
		bare: sums(func(k int) float64 {
			bare, _ := costs[k].Again()
			return bare - costs[k].ForwardS
		}),
		again: sums(func(k int) float64 {
			_, again := costs[k].Again()
			return again - (costs[k].ForwardS + costs[k].BackwardS)
		}),
		bareBlocks: sums(func(k int) float64 {
			bare, _ := costs[k].Again()
			return inBlock(&t.p.Layers[k], bare-costs[k].ForwardS)
		}),
		againBlocks: sums(func(k int) float64 {
			_, again := costs[k].Again()
			return inBlock(&t.p.Layers[k], again-costs[k].BackwardS)
		}),
		halves: sums(func(k int) float64 {
			input, weight := costs[k].BackwardInputS, costs[k].BackwardWeightS
			if input == nil || weight == nil {
				return 0
			}
			return *input + *weight - costs[k].BackwardS
		}),
	}
	out.crosses = out.Cut
	if packed, _, err := t.packed.At(device, rows); err == nil && t.boundary.Packs() {
		out.crosses = memory.SumsOf(t.packed, packed).Cut
		pack, unpack := sim.PackingS(t.p, t.c, t.boundary, device)
		out.packs, out.unpacks = make([]float64, len(out.Cut)), make([]float64, len(out.Cut))
		for k, whole := range out.Cut {
			out.packs[k], out.unpacks[k] = pack(whole, out.crosses[k]), unpack(whole, out.crosses[k])
		}
	}
	return out
}

// inBlock returns s for a layer in a block, and 0 otherwise.
func inBlock(l *profile.Layer, s float64) float64 {
	if plan.BlockOf(l.Name) == "" {
		return 0
	}
	return s
}
