package pipedream

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// held is a segment of a plan with its memory by the published rule.
type held struct {
	first, last int // first and last state
	devices     []int
	bytes       float64
}

// probedStates limits the states in the search for the least memory limit, which solves the recursion about forty
// times.
const probedStates = 384

// refusal says by how much the best plan exceeds the memory and where, or that no memory would be enough. It finds the
// least limit by bisection, because a plan that fits one limit also fits every larger one. For models with more than
// probedStates states, it searches a sample of that many states. A plan over the sample is also a plan over all states.
func (s *search) refusal(ctx context.Context, r plan.Request, states *profile.States) error {
	probe := &search{model: s.model}
	if len(s.list) > probedStates {
		probe.model = s.thinned(probedStates)
	}
	var stages []stage
	within := func(limit int64) (bool, error) {
		probe.o.memory = float64(limit)
		found, value, err := probe.solve(ctx)
		if err != nil || math.IsInf(value, 1) {
			return false, err
		}
		stages = found
		return true, nil
	}
	fits, err := within(0)
	switch {
	case err != nil:
		return err
	case !fits:
		return fmt.Errorf("plan: %s: no plan uses all %d devices, stages being %d at most without replicas: allow "+
			"fewer with use_fewer_machines=on, or replicas with straight_pipeline=off",
			s.o.planner, len(r.Cluster.Devices), len(s.list))
	}
	least := int64(probe.fullest.bytes)
	for low := int64(s.o.memory); least-low > 1; {
		limit := low + (least-low)/2
		fits, err := within(limit)
		switch {
		case err != nil:
			return err
		case fits:
			least = int64(probe.fullest.bytes)
		default:
			low = limit
		}
	}
	// The fullest segment is a stage or, on an outer level, several stages of one server.
	chain, before, at := make([]int, len(stages)), 0, 0
	for i, st := range stages {
		chain[i] = probe.ids[st.last]
		if st.last < probe.fullest.first {
			before = i + 1
		}
		if st.last == probe.fullest.last {
			at = i
		}
	}
	order, ends := states.Order(chain)
	first := 0
	if before > 0 {
		first = ends[before-1]
	}
	name := func(k int) string { return r.Profile.Layers[order[min(k, len(order)-1)]].Name }
	e := plan.Refusal(s.o.planner, "weights and outputs of the minibatches in flight, as published", least,
		func(int) int64 { return int64(s.o.memory) },
		[]plan.Held{{First: name(first), Last: name(max(first, ends[at]-1)), Devices: probe.fullest.devices,
			Bytes: least}})
	e.Stages, e.Stage = len(stages), before
	if looked := len(probe.list); looked < len(states.List) {
		e.Among = fmt.Sprintf("those cut at %d of its %d states", looked, len(states.List))
	}
	return e
}
