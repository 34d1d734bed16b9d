package tune

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/sim/memory"
)

// table is sums over runs of layers on one device type at one number of rows: what a stage
// of layers from..to-1 costs is one subtraction.
type table struct {
	*memory.Sums
	forward, backward, update []float64 // seconds
	feed                      []float64 // of copying model inputs, in front of forwards
	// bare and again are what was measured beyond expectation where layers are computed again: of forwards that
	// keep nothing beyond forwards, and of backwards beyond a forward and a backward.
	bare, again []float64
	// bareBlocks and againBlocks are what blocks that are computed again add to forwards and to backwards.
	bareBlocks, againBlocks []float64
	halves                  []float64 // of both halves of backwards beyond the whole
	// crosses is the bytes that cross the cut before each layer in the format of boundaries. packs and unpacks are how
	// long writing them so and reading them again take: of activations, which gradients are taken to be as large as.
	crosses        []int64
	packs, unpacks []float64
}

// packing is what a stage's forward and backward of one micro-batch take besides, where what it sends and receives is
// packed.
func (t *table) packing(from, to int) (forward, backward float64) {
	if t.packs == nil {
		return 0, 0
	}
	return t.unpacks[from] + t.packs[to], t.unpacks[to] + t.packs[from]
}

// time is how long a stage's forward and backward of one micro-batch take, as sim.CostsOf has it.
func (t *table) time(from, to int, again plan.Recompute) (forward, backward float64) {
	forward, backward = span(t.forward, from, to), span(t.backward, from, to)
	switch {
	case again == plan.Blocks:
		backward += span(t.againBlocks, from, to)
		forward += span(t.bareBlocks, from, to)
	case again == plan.Selective: // its profile says so (space)
	case again.Again():
		backward += forward + span(t.again, from, to)
		forward += span(t.bare, from, to)
	}
	return forward + span(t.feed, from, to), backward
}

// least is the least that a micro-batch computes in a stage, its backward whole or in halves.
func (t *table) least(from, to int, again plan.Recompute) float64 {
	forward, backward := t.time(from, to, again)
	return forward + backward + min(0, span(t.halves, from, to))
}

// span is the sum over layers from..to-1, sums being of all layers before each.
func span(sums []float64, from, to int) float64 { return sums[to] - sums[from] }

// tables makes and keeps the tables of a profile. A nil table is a size that the profile
// has no costs for.
type tables struct {
	p, packed *profile.Profile // packed: with what crosses boundaries in the format
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

// inBlock is seconds of a layer that is in a block, or none.
func inBlock(l *profile.Layer, s float64) float64 {
	if plan.BlockOf(l.Name) == "" {
		return 0
	}
	return s
}
