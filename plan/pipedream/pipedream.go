// Package pipedream is PipeDream's optimizer (SOSP'19, section 3.1).
//
// It finds the least time of the slowest stage for one minibatch. It considers all partitions into stages of
// consecutive states and all numbers of replicas, level by level from the innermost:
//
//	T^k(i->j, m) = 1/m max( A^(k-1)(i->j, m_(k-1)), 2 (m-1) sum|w_l| / B_k )
//	A^k(i->j, m) = min( T^k(i->j, m), min over s, m' of max( A^k(i->s, m-m'), 2 a_s / B_k, T^k(s+1->j, m') ) )
//
// A^k is the least time of states i to j on m workers of level k, and T^k the time of one stage of them on m replicas.
// B_k is the level's bandwidth, w_l are a layer's weights, and a_s is the output of state s.
//
// In the printed formula T^k(i->j, m) itself is not a candidate, so data parallelism could never result. Here it is
// one. Formula "artifact" is the published optimizer_graph_hierarchical.py, term by term. Compute and synchronisation
// are added up. The volume is 4 (m-1) W / m for W bytes of weights. For a stage that was not cut, the volume is divided
// once more, by the number of workers of the next inner level. Transfers exist only with a compression ratio and are
// divided by the stage's replicas. The transfer of a stage's output is added to the stage's time too, unless the stage
// ends with the last state. A cut's state need only be an ancestor of the state where the segment ends. Each difference
// is a separate setting. model.go has the terms, and search.go the search for the minimum.
//
// The paper has only one kind of device. On a cluster with several, this package assumes the speed and memory of the
// worst of them, and says so in Why. The same holds for links that differ within a level. If no plan keeps to a given
// limit, it returns a plan.MemoryError.
package pipedream

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

func init() {
	plan.RegisterPlanner(plan.Planner{
		Name: "pipedream", Paper: "PipeDream: Generalized Pipeline Parallelism for DNN Training (Narayanan et al., " +
			"SOSP 2019), section 3.1",
		Artifact: "msr-fiddle/pipedream@7db6a1c, optimizer_graph_hierarchical.py",
		Settings: Settings, Plan: find,
	})
}

func find(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	o, err := read("pipedream", Settings, r)
	if err != nil {
		return nil, err
	}
	return o.plan(ctx, r)
}

// Flushed runs PipeDream's optimizer under another planner's name and with that planner's settings. Its plans are
// synchronous: each step runs its micro-batches and then one update.
func Flushed(ctx context.Context, planner string, settings []plan.Setting, r plan.Request) (*plan.Plan, error) {
	o, err := read(planner, settings, r)
	if err != nil {
		return nil, err
	}
	o.flush = true
	return o.plan(ctx, r)
}

// plan answers a request with these options.
func (o options) plan(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	size, costs, device, err := o.costs(r)
	if err != nil {
		return nil, err
	}
	states, why, err := cutStates(r.Profile, costs)
	if err != nil {
		return nil, fmt.Errorf("plan: %s: %w", o.planner, err)
	}
	levels := o.levels(r.Cluster)
	if why != "" {
		why = "states: " + why
	}
	s := &search{model: model{o: o, levels: levels}}
	s.take(states, o.states)
	if s.dropped > 0 {
		why += fmt.Sprintf(" a beam of %d of the %d states, those with the least output among their neighbours in time",
			len(s.list), len(states.List))
	}
	memory := ""
	if o.memory == 0 && o.constrain != "off" {
		s.o.memory = float64(leastMemory(r.Cluster))
	}
	stages, value, err := s.solve(ctx)
	if err == nil && math.IsInf(value, 1) && o.constrain == "auto" && s.o.memory > 0 {
		memory = fmt.Sprintf("no plan keeps to %s a device by the published rule, which counts every output as held; "+
			"this one is found without it", terminal.Bytes(int64(s.o.memory)))
		s.o.memory = 0
		stages, value, err = s.solve(ctx)
	}
	if err != nil {
		return nil, err
	}
	if math.IsInf(value, 1) {
		return nil, s.refusal(ctx, r, states)
	}
	pl, err := s.answer(r, states, stages, size)
	if err != nil {
		return nil, err
	}
	pl.Objective = plan.Objective{Name: "slowest stage or transfer for one minibatch", Value: value, Unit: "s"}
	for _, note := range []string{device, why, memory, o.note(), r.Profile.Basis(r.Cluster.Devices[0], size)} {
		if note != "" {
			pl.Why = append(pl.Why, note)
		}
	}
	if s.dropped > 0 || states.SlackS > 0 || states.SlackParameterBytes > 0 {
		pl.Why = append(pl.Why, s.gap(value))
	}
	return pl, nil
}

// gap says how far the best plan over some of the states can be above the optimum over all states.
func (s *search) gap(value float64) string {
	bound := s.list[len(s.list)-1].ComputeS / float64(s.devices())
	if value <= bound*(1+plan.SameTime) {
		return fmt.Sprintf("it is the optimum over all states, too: no plan takes less than %.6g s, all compute "+
			"shared evenly", bound)
	}
	return fmt.Sprintf("no plan takes less than %.6g s, all compute shared evenly: with all states it would be at "+
		"most %.1f %% better", bound, 100*(1-bound/value))
}

// cutStates returns the states after which a profile may be cut, and describes those that were left out.
func cutStates(p *profile.Profile, costs []profile.Cost) (*profile.States, string, error) {
	states, err := profile.CompressedStates(p, costs)
	if err != nil {
		return nil, "", err
	}
	if states.SlackS > 0 || states.SlackParameterBytes > 0 {
		return states, fmt.Sprintf("the graph has more than %d, and some were left out: a stage may take up to %.3g "+
			"s and %d bytes of parameters more than the best cut would",
			profile.FewStates, states.SlackS, states.SlackParameterBytes), nil
	}
	return states, "", nil
}

// costs chooses the minibatch and the costs of the slowest device type. The minibatch is the request's, or else the
// best of the profile's sizes that divide the batch (see better). If none divides it, it is the whole batch.
func (o options) costs(r plan.Request) (size int, costs []profile.Cost, why string, err error) {
	if len(r.Profile.Layers) == 0 || len(r.Cluster.Devices) == 0 {
		return 0, nil, "", fmt.Errorf("plan: %s: %d layers, %d devices; both must be 1 at least", o.planner,
			len(r.Profile.Layers), len(r.Cluster.Devices))
	}
	types := slices.Compact(slices.Sorted(slices.Values(r.Cluster.Devices)))
	if size, err = o.size(r); err != nil {
		return 0, nil, "", err
	}
	slowest, longest := "", math.Inf(-1)
	for _, t := range types {
		c, _, err := r.Profile.At(t, size)
		if err != nil {
			return 0, nil, "", fmt.Errorf("plan: %s: %w", o.planner, err)
		}
		total := 0.0
		for _, layer := range c {
			total += layer.ForwardS + layer.BackwardS
		}
		if total > longest {
			slowest, longest, costs = t, total, c
		}
	}
	if len(types) > 1 {
		why = fmt.Sprintf("PipeDream assumes one kind of device: all of %v count as %s, the slowest, and the order "+
			"of types is not part of the answer", types, slowest)
	}
	return size, costs, why, nil
}

func (o options) size(r plan.Request) (int, error) {
	if m := r.MicroBatch; m != 0 {
		if m < 1 || r.Batch%m != 0 {
			return 0, fmt.Errorf("plan: %s: micro-batch %d does not divide the batch of %d", o.planner, m, r.Batch)
		}
		return m, nil
	}
	sizes := r.Profile.Sizes(r.Cluster.Devices[0])
	best := 0
	for _, m := range sizes {
		if m <= r.Batch && r.Batch%m == 0 && (best == 0 || o.better(m, best, r.Batch, len(r.Cluster.Devices))) {
			best = m
		}
	}
	if best > 0 {
		return best, nil
	}
	return r.Batch, nil // p.At interpolates, scales, or lists the existing sizes
}

// better says whether minibatch m is better than minibatch `than`. Without a flush, the larger one is better. With a
// flush, there should be at least one micro-batch for each device. If only one of the two sizes gives that many
// micro-batches, this size is better. If both do, the larger one is better. If neither does, the smaller one is better.
func (o options) better(m, than, batch, devices int) bool {
	if o.flush && batch/m < devices {
		return m < than && batch/than < devices
	}
	return m > than || (o.flush && batch/than < devices)
}

// levels returns the cluster's levels, innermost first, with the slowest links of each. The setting `bandwidths`
// replaces the cluster's bandwidths. The setting hierarchy=flat gives one level with the slowest bandwidth of all
// levels, or with the last one that `bandwidths` gives.
func (o options) levels(c *cluster.Cluster) []level {
	var levels []level
	for i, l := range c.Levels {
		b := l.BandwidthBytesPerSecond
		if i == 0 {
			for _, n := range c.Nodes {
				if n.BandwidthBytesPerSecond > 0 {
					b = min(b, n.BandwidthBytesPerSecond)
				}
			}
		}
		if o.bandwidths != nil && i < len(o.bandwidths) {
			b = o.bandwidths[i]
		}
		levels = append(levels, level{workers: l.Size, bandwidth: b})
	}
	if o.flat {
		flat := level{workers: len(c.Devices), bandwidth: math.Inf(1)}
		for _, l := range levels {
			if l.workers > 1 || len(levels) == 1 {
				flat.bandwidth = min(flat.bandwidth, l.bandwidth)
			}
		}
		if o.bandwidths != nil {
			flat.bandwidth = o.bandwidths[len(o.bandwidths)-1]
		}
		return []level{flat}
	}
	return levels
}

func leastMemory(c *cluster.Cluster) int64 {
	least := int64(0)
	for d := range c.Devices {
		if m := c.MemoryBytes(d); m > 0 && (least == 0 || m < least) {
			least = m
		}
	}
	return least
}
