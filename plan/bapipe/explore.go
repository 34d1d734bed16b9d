package bapipe

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
)

// exploration is the state of a search.
type exploration struct {
	r     plan.Request
	o     options
	best  *plan.Plan
	least *plan.MemoryError // of all errors so far, the one with the smallest memory limit
	tried int
}

// consider keeps a plan that takes less time than the best so far.
func (x *exploration) consider(p *plan.Plan) {
	x.tried++
	if x.best == nil || p.Objective.Value < x.best.Objective.Value*(1-1e-12) {
		x.best = p
	}
}

// try searches partitions for one micro-batch size and for chains of devices that work side by side. Each chain gets
// its share of the micro-batches.
func (x *exploration) try(places [][]int, size int) error {
	M, chains := x.r.Batch/size, len(places[0])
	if M < chains {
		return nil
	}
	M = (M + chains - 1) / chains
	for _, family := range x.o.schedules {
		h, err := newChain(x.r, places, size, family)
		if err != nil {
			return err
		}
		fits := func(i, from, to int) bool {
			limit := h.memoryBytes(i)
			need := h.memory(i, from, to, featuresOf(family, i, len(places), M))
			return limit == 0 || need <= limit
		}
		anywhere := func(int, int) bool { return true }
		cuts := h.balanced(anywhere, fits)
		if cuts == nil {
			x.refuse(h.leastMemory(family, M))
			continue
		}
		bounds := whole(cuts)
		if h.communicates(bounds) {
			if coarse := x.coarse(h, fits); coarse != nil {
				if x.step(h, family, coarse, M) < x.step(h, family, bounds, M) {
					bounds = coarse
				}
			}
		} else if x.o.divide && len(places) > 1 {
			parts, _ := h.divided()
			if x.o.features && parts != nil {
				parts = h.inFeatures(parts)
			}
			if parts != nil && x.holds(h, family, parts, M) && !h.communicates(parts) &&
				x.step(h, family, parts, M) < x.step(h, family, bounds, M)*(1-1e-12) {
				bounds = parts
			}
		}
		x.consider(x.plan(h, family, bounds, M))
	}
	return nil
}

func whole(cuts []int) []boundary {
	out := make([]boundary, len(cuts))
	for i, c := range cuts {
		out[i].layer = c
	}
	return out
}

// communicates says whether communication is the bottleneck. This is so if, at some boundary, sending the features and
// returning their gradients takes longer than the computations of the longest stage.
func (h *chain) communicates(bounds []boundary) bool {
	pace, sr := h.pace(bounds)
	return 2*sr > pace
}

// pace returns F + B of the longest stage, and SR of the longest transfer.
func (h *chain) pace(bounds []boundary) (pace, sr float64) {
	from := boundary{}
	for i := range h.places {
		to := boundary{layer: len(h.p.Layers)}
		if i < len(bounds) {
			to = bounds[i]
		}
		pace = max(pace, h.work(i, from, to))
		if i > 0 {
			sr = max(sr, h.transfer(i, h.crossing(from)))
		}
		from = to
	}
	return pace, sr
}

// coarse returns the partition that cuts only where the features that cross are at most the threshold a_th (§3.3.3). If
// no such partition fits, a_th is raised until one fits. If there is no such threshold, coarse returns nil.
func (x *exploration) coarse(h *chain, fits func(i, from, to int) bool) []boundary {
	n := len(h.p.Layers)
	threshold := x.o.threshold
	if threshold == 0 {
		// The threshold is the largest number of bytes that every link of the chain carries there and back within T.
		T := h.ideal()
		most := slices.Max(h.cut)
		threshold = int64(searchBytes(most, func(bytes int64) bool {
			for i := 1; i < len(h.places); i++ {
				if 2*h.transfer(i, bytes) > T {
					return false
				}
			}
			return true
		}))
	}
	levels := slices.Clone(h.cut[1:n])
	slices.Sort(levels)
	levels = slices.Compact(levels)
	first, _ := slices.BinarySearch(levels, threshold+1)
	thresholds := append([]int64{threshold}, levels[min(first, len(levels)):]...)
	below := func(a int64) []int {
		return h.balanced(func(_, cut int) bool { return h.cut[cut] <= a }, fits)
	}
	// A higher threshold allows every cut that a lower one allows. So bisection finds the lowest threshold with a
	// partition.
	at := sort.Search(len(thresholds), func(i int) bool { return below(thresholds[i]) != nil })
	if at == len(thresholds) {
		return nil
	}
	return whole(below(thresholds[at]))
}

// searchBytes returns the largest number from 0 to `most` for which `passes` is true. If `passes` is true for a number,
// it must be true for all smaller ones. searchBytes does not call `passes` for 0.
func searchBytes(most int64, passes func(int64) bool) int64 {
	low, high := int64(0), most
	for low < high {
		mid := low + (high-low+1)/2
		if passes(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// holds says whether every stage of a divided partition fits.
func (x *exploration) holds(h *chain, family string, bounds []boundary, M int) bool {
	from := boundary{}
	for i := range h.places {
		to := boundary{layer: len(h.p.Layers)}
		if i < len(bounds) {
			to = bounds[i]
		}
		limit := h.memoryBytes(i)
		if limit > 0 && h.holds(i, from, to, featuresOf(family, i, len(h.places), M)) > limit {
			return false
		}
		from = to
	}
	return true
}

// step returns the mini-batch time of a partition by the tables, in seconds.
func (x *exploration) step(h *chain, family string, bounds []boundary, M int) float64 {
	pace, sr := h.pace(bounds)
	N := len(h.places)
	switch family {
	case "1f1b-as":
		// A feature map must cross within the time of a forward, and its gradient within the time of a backward. For
		// feature maps, that is the bandwidth a/F which Table I requires.
		from := boundary{}
		for i := range bounds {
			f := h.forward[i][bounds[i].layer] - h.forward[i][from.layer] + borders(h.forward[i], from, bounds[i])
			t := h.transfer(i+1, h.crossing(bounds[i]))
			pace = max(pace, max(f, t)+max(h.work(i, from, bounds[i])-f, t))
			from = bounds[i]
		}
		sr = 0
	case "fbp-as":
		pace, sr = max(pace, 2*sr), 0
	case "so":
		pace = max(pace, 2*sr)
	}
	step, err := stepOf(family, M, N, pace, sr)
	if err != nil {
		panic("plan: bapipe: " + err.Error())
	}
	return step + h.alone(bounds) + h.allReduce(bounds)
}

// alone returns the time that Table I leaves out. A board may need more time for a forward and a backward one after the
// other than for both at once. Filling and emptying the pipeline then takes longer. The last stage has M-1 pairs of a
// forward and a backward at once, with N forwards before them and N backwards after them.
func (h *chain) alone(bounds []boundary) float64 {
	if !h.paired {
		return 0
	}
	more, from := 0.0, boundary{}
	for i := range h.places {
		to := boundary{layer: len(h.p.Layers)}
		if i < len(bounds) {
			to = bounds[i]
		}
		if h.flow[i] != nil {
			forward, backward, paired := h.onBoard(i, from, to)
			more += forward + backward - paired
		}
		from = to
	}
	return more
}

// allReduce returns the longest time that a stage needs to sum its gradients over the chains. Nothing overlaps this
// time.
func (h *chain) allReduce(bounds []boundary) float64 {
	if len(h.places[0]) == 1 {
		return 0
	}
	longest, from := 0.0, boundary{}
	for i, on := range h.places {
		to := boundary{layer: len(h.p.Layers)}
		if i < len(bounds) {
			to = bounds[i]
		}
		bytes := h.weights[to.layer] - h.weights[from.layer] + borders(h.weights, from, to)
		longest = max(longest, h.c.AllReduceS(on, bytes))
		from = to
	}
	return longest
}

// leastMemory returns the error with the smallest memory limit for which some partition fits. Bisection finds it,
// because a partition that fits one limit also fits every larger one.
func (h *chain) leastMemory(family string, M int) *plan.MemoryError {
	N, high := len(h.places), int64(0)
	need := func(i, from, to int) int64 { return h.memory(i, from, to, featuresOf(family, i, N, M)) }
	for i := range h.places {
		high = max(high, need(i, 0, len(h.p.Layers)))
	}
	within := func(limit int64) []int {
		return h.balanced(func(int, int) bool {
			return true
		}, func(i, from, to int) bool { return need(i, from, to) <= limit })
	}
	limit := searchBytes(high, func(limit int64) bool { return within(limit) == nil }) + 1
	var stages []plan.Held
	from := 0
	for i, to := range append(within(limit), len(h.p.Layers)) {
		stages = append(stages, plan.Held{First: h.p.Layers[from].Name, Last: h.p.Layers[to-1].Name,
			Devices: h.places[i], Bytes: need(i, from, to)})
		from = to
	}
	return plan.Refusal("bapipe", counts, limit, h.c.MemoryBytes, stages)
}

const counts = "weights, gradients, optimizer and features"

// refuse keeps the error with the smallest limit so far.
func (x *exploration) refuse(e *plan.MemoryError) {
	if x.least == nil || e.SmallestBytes < x.least.SmallestBytes {
		x.least = e
	}
}

// plan writes a partition as a plan.
func (x *exploration) plan(h *chain, family string, bounds []boundary, M int) *plan.Plan {
	p := x.r.Blank("bapipe", "round_robin")
	p.MicroBatch, p.MicroBatches, p.Schedule = h.size, x.r.Batch/h.size, family
	p.Objective = plan.Objective{Name: "mini-batch time (BaPipe Tables I and II)", Value: x.step(h, family, bounds, M),
		Unit: "s"}
	from := boundary{}
	for i, on := range h.places {
		st := plan.Stage{FirstLayer: from.layer, LastLayer: len(h.p.Layers) - 1, Devices: on,
			Warmup: warmup(family, i, len(h.places), M)}
		if from.part > 0 {
			st.FirstFraction = 1 - from.part
		}
		if i < len(bounds) {
			to := bounds[i]
			switch {
			case to.part == 0:
				st.LastLayer = to.layer - 1
			case from.part > 0 && to.layer == from.layer: // the stage is a piece from the middle of a layer
				st.LastLayer, st.FirstFraction = to.layer, to.part-from.part
			default:
				st.LastLayer, st.LastFraction = to.layer, to.part
			}
			from = to
		}
		p.Stages = append(p.Stages, st)
	}
	pace, sr := h.pace(bounds)
	names := make([]string, len(h.places))
	for i, on := range h.places {
		names[i] = x.r.Cluster.Devices[on[0]]
	}
	if chains := len(h.places[0]); chains > 1 {
		p.Why = append(p.Why, fmt.Sprintf("%d chains of %s side by side, each with its share of the micro-batches; "+
			"their gradients' sum takes %.4g ms", chains, terminal.Count(len(h.places), "device"), 1e3*h.allReduce(bounds)))
	}
	why := fmt.Sprintf("longest stage computes %.4g ms for a micro-batch, T of equation (1) is %.4g ms; longest "+
		"transfer %.4g ms each way", 1e3*pace, 1e3*h.ideal(), 1e3*sr)
	p.Why = append(p.Why, why)
	if distinct := slices.Compact(slices.Sorted(slices.Values(names))); len(distinct) > 1 {
		p.Why = append(p.Why, "device types along the chain: "+strings.Join(names, ", "))
	}
	return p
}

// tryDataParallel considers a plan with data parallelism, as in Table III. Every device runs the whole model on its
// share of the mini-batch, one micro-batch after the other. The all-reduce begins when all of them have ended.
func (x *exploration) tryDataParallel(size int) error {
	M, N := x.r.Batch/size, len(x.r.Cluster.Devices)
	if x.o.stages < N || N < 2 || M < N {
		return nil
	}
	p, err := split.DataParallel(x.r.Profile, x.r.Cluster, size, M, N)
	if err != nil {
		return err
	}
	devices := p.Stages[0].Devices
	layers := x.r.Profile.Layers
	n, slowest, bytes, fits := len(layers), 0.0, int64(0), true
	least, whole := int64(0), []plan.Held{} // bytes that every device must have, and what each holds
	for _, d := range devices {
		h, err := newChain(x.r, [][]int{{d}}, size, "dp")
		if err != nil {
			return err
		}
		need, limit := h.memory(0, 0, n, 1), x.r.Cluster.MemoryBytes(d)
		fits, least = fits && (limit == 0 || need <= limit), max(least, need)
		whole = append(whole, plan.Held{First: layers[0].Name, Last: layers[n-1].Name, Devices: []int{d}, Bytes: need})
		slowest, bytes = max(slowest, h.compute(0, 0, n)), h.weights[n]
	}
	if !fits {
		e := plan.Refusal("bapipe", counts, least, x.r.Cluster.MemoryBytes, whole)
		e.Stages, e.Stage = 1, 0
		x.refuse(e)
		return nil
	}
	p.Planner = "bapipe"
	share := float64((M + N - 1) / N)
	p.Objective = plan.Objective{Name: "mini-batch time of data parallelism",
		Value: share*slowest + x.r.Cluster.AllReduceS(devices, bytes), Unit: "s"}
	x.consider(p)
	return nil
}
