package tune

import (
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// shape is a plan in the form in which moves change it.
type shape struct {
	cuts   []int // stage i is layers cuts[i]..cuts[i+1]-1
	counts []int // number of devices of each stage, taken from `order` one stage after the other
	order  []int // the devices of the stages, in the stages' order, then the unused devices
	depth  []int // warm-up depth K_i of each stage
	again  []plan.Recompute
	size   int  // samples of a micro-batch
	split  bool // replicas take slices of each micro-batch instead of micro-batches in turn
	family string
}

func (h *shape) stages() int { return len(h.counts) }

func (h *shape) used() int {
	n := 0
	for _, c := range h.counts {
		n += c
	}
	return n
}

// rows returns how many samples of a micro-batch a replica computes, at most.
func (h *shape) rows(replicas int) int {
	if h.split {
		return (h.size + replicas - 1) / replicas
	}
	return h.size
}

func (h *shape) replicated() bool { return h.stages() > 1 && h.used() > h.stages() }

// devices returns the devices of each stage, ascending.
func (h *shape) devices() [][]int {
	out := make([][]int, h.stages())
	at := 0
	for i, n := range h.counts {
		out[i] = h.order[at : at+n]
		if !slices.IsSorted(out[i]) {
			out[i] = slices.Sorted(slices.Values(out[i]))
		}
		at += n
	}
	return out
}

func (h *shape) stageOf(layer int) int {
	i, found := slices.BinarySearch(h.cuts, layer)
	if found {
		return i
	}
	return i - 1
}

// changePlaces exchanges the devices of two stages. If one of them has more devices, the devices of the stages between
// them shift too.
func (h *shape) changePlaces(i, j int) {
	devices := h.devices()
	var taken []int
	stages := make([]int, len(devices))
	for s, on := range devices {
		taken, stages[s] = append(taken, on...), s
	}
	slices.Sort(taken)
	slices.SortFunc(stages, func(a, b int) int { return devices[a][0] - devices[b][0] })
	a, b := slices.Index(stages, i), slices.Index(stages, j)
	stages[a], stages[b] = j, i
	begins, at := make([]int, len(stages)), 0
	for _, s := range stages {
		begins[s] = at
		at += h.counts[s]
	}
	order := make([]int, 0, len(h.order))
	for s, begin := range begins {
		order = append(order, taken[begin:begin+h.counts[s]]...)
	}
	h.order = append(order, h.order[at:]...)
}

func (h *shape) clone() *shape {
	next := *h
	next.cuts, next.counts, next.order = slices.Clone(h.cuts), slices.Clone(h.counts), slices.Clone(h.order)
	next.depth, next.again = slices.Clone(h.depth), slices.Clone(h.again)
	return &next
}

func kindOf(h *shape) string {
	switch {
	case h.stages() == 1 && h.used() == 1:
		return oneWorker
	case h.stages() == 1:
		return dataParallelism
	case h.replicated():
		return "replicated " + h.family
	}
	return h.family
}

// kindOfAny returns the kind under which tryAny keeps a shape's plan.
func (s *space) kindOfAny(h *shape) string {
	if _, searched := s.families[h.family]; searched || h.stages() == 1 {
		return kindOf(h)
	}
	return h.family
}

func (s *space) plan(h *shape) *plan.Plan {
	out := &plan.Plan{
		Version: plan.Version, Model: s.Profile.Model, ModelID: s.Profile.ModelID, Cluster: s.Cluster.Name,
		Replication: string(schedule.RoundRobin), MicroBatch: h.size, MicroBatches: s.Batch / h.size, Schedule: h.family,
		Weights: string(schedule.Sync), Planner: "auto",
		Objective: plan.Objective{Name: "simulated step", Unit: "s"},
	}
	if h.split {
		out.Replication = string(schedule.Split)
	}
	if h.stages() > 1 {
		out.Boundary = s.Fix.Boundary
	}
	for i, devices := range h.devices() {
		st := plan.Stage{FirstLayer: h.cuts[i], LastLayer: h.cuts[i+1] - 1, Devices: slices.Clone(devices),
			Recompute: h.again[i], Warmup: h.depth[i]}
		out.Stages = append(out.Stages, st)
	}
	return out
}

// shapeOf returns a plan's shape, or nil if moves cannot be applied to the plan. They can be applied if its layers are
// whole and in the profile's own order, if no device has several stages, and if updates are at the flush.
func (s *space) shapeOf(pl *plan.Plan) *shape {
	if pl.Order != nil || !schedule.Policy(pl.Weights).Synchronous() || pl.Batch() != s.Batch {
		return nil
	}
	h := &shape{cuts: []int{0}, size: pl.MicroBatch, split: pl.Replication == string(schedule.Split), family: pl.Schedule}
	taken := make([]bool, len(s.Cluster.Devices))
	for _, st := range pl.Stages {
		if st.FirstFraction != 0 || st.LastFraction != 0 || st.FirstLayer != h.cuts[len(h.cuts)-1] || st.Warmup < 1 {
			return nil
		}
		for _, d := range st.Devices {
			if d < 0 || d >= len(taken) || taken[d] {
				return nil
			}
			taken[d] = true
		}
		h.cuts = append(h.cuts, st.LastLayer+1)
		h.counts, h.order = append(h.counts, len(st.Devices)), append(h.order, st.Devices...)
		h.depth, h.again = append(h.depth, st.Warmup), append(h.again, st.Recompute)
	}
	for d, used := range taken {
		if !used {
			h.order = append(h.order, d)
		}
	}
	return h
}

// depths returns a family's K_i for stages with these replica counts. To find the depths, imagine a pipeline in which
// each of these devices is a stage of its own. A stage's place is that of its first device. The family says how many
// micro-batches are in flight at that place, and the stage's replicas share them. For 1F1B this is PipeDream §3.2's
// NOAM by stage. If replicas split micro-batches, they count as one device. No stage gets a smaller depth than the
// stage after it.
func depths(counts []int, split bool, warmup func(stages, microBatches int) []int, microBatches int) []int {
	places := len(counts)
	if !split {
		places = 0
		for _, r := range counts {
			places += r
		}
	}
	k, at := warmup(places, microBatches), 0
	out := make([]int, len(counts))
	for i, r := range counts {
		if split {
			r = 1
		}
		out[i] = min(max(1, (k[at]+r-1)/r), microBatches)
		at += r
	}
	for i := len(out) - 2; i >= 0; i-- {
		out[i] = max(out[i], out[i+1])
	}
	return out
}

// settleDepths gives a shape the fixed depths, if there is one for each of its stages. Otherwise it gives those that
// the shape's family has for its present devices. It returns false if the shape is not allowed.
func (s *space) settleDepths(n *shape) bool {
	m := s.Batch / n.size
	f, ok := s.families[n.family]
	switch {
	case s.Fix.Warmup != nil && len(s.Fix.Warmup) == n.stages():
		n.depth = slices.Clone(s.Fix.Warmup)
	case n.stages() == 1:
		n.depth = []int{1}
	case ok:
		n.depth = depths(n.counts, n.split, f.Warmup, m)
	case len(n.depth) != n.stages():
		return false // several stages, although the fixed schedule has one
	}
	return true
}

// place puts a plan's stages where its family wants them on the given number of devices. It does nothing if the
// number of stages does not match.
func place(pl *plan.Plan, f family.Family, devices int) {
	if f.Place == nil {
		return
	}
	for v := 1; v <= max(1, len(pl.Stages)/devices); v++ {
		if on := f.Placement(devices, v); len(on) == len(pl.Stages) {
			for i := range pl.Stages {
				pl.Stages[i].Devices = on[i]
			}
			return
		}
	}
}
