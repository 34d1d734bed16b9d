package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim/memory"
	"github.com/millrace-ml/millrace/tune/roles"
)

// space is what a search chooses from: a request and its open choices. Only its caches change.
type space struct {
	Request
	sizes     []int                    // micro-batch sizes to try
	families  map[string]family.Family // families whose depths are searched
	pipelines family.Family            // the family that takes any depths
	undivided family.Family            // the family that has the whole model on every worker
	mixed     bool                     // devices differ
	orders    [][]int                  // orders of devices to try
	tables    *tables
	sums      map[*int]*sums // for each of `orders`; the key is the address of the order's first element
}

// newSpace returns the space of a request. It refuses requests that contradict themselves, and fills in the settings
// that follow from fixed ones.
func newSpace(r Request) (*space, error) {
	if len(r.Cluster.Devices) == 0 {
		return nil, fmt.Errorf("tune: cluster %s has no devices", r.Cluster.Name)
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.Fix.Schedule != "" {
		f, err := family.Lookup(r.Fix.Schedule)
		if err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
		if r.Fix.Schedule = f.Name; roles.WholeModel(f) { // on one worker all of these are the same
			r.Fix.Schedule = roles.Undivided().Name
		}
	}
	if err := r.settleWeights(); err != nil {
		return nil, err
	}
	s := &space{
		Request: r, pipelines: roles.Pipelines(), undivided: roles.Undivided(), families: map[string]family.Family{},
		sums: map[*int]*sums{},
	}
	estimated := r.Profile // for tables; sim.CostsOf itself adds the recompute of scores to plans
	var err error
	if again, _, _ := r.Fix.FixedRecompute(); again == plan.Selective {
		if estimated, err = r.Profile.Selective(); err != nil {
			return nil, wrong("recompute", "%s", strings.TrimPrefix(err.Error(), "profile: recompute "))
		}
	}
	s.tables = newTables(estimated, r.Cluster, r.Fix.Boundary)
	if s.sizes, err = s.microBatches(); err != nil {
		return nil, err
	}
	for d := range r.Cluster.Devices {
		s.mixed = s.mixed || !s.same(0, d)
	}
	s.orders = s.deviceOrders()
	for _, f := range family.All() {
		if f.Warmup != nil && !roles.SeveralStages(f) && (!f.Streaming || s.streams()) &&
			(s.Fix.Schedule == "" || s.Fix.Schedule == f.Name) && s.admits(f) {
			s.families[f.Name] = f
		}
	}
	return s, nil
}

// maxSizes limits the micro-batch sizes that are tried.
const maxSizes = 10

// microBatches lists the sizes to try, ascending: divisors of the batch that are profiled for the first device and have
// costs on the other devices. If there are fewer than three, it adds other divisors for which the profile has a cost.
// If a size is fixed, only that size is tried. A list of more than maxSizes is thinned out.
func (r *Request) microBatches() ([]int, error) {
	p, device := r.Profile, r.Cluster.Devices[0]
	knows := func(size int) bool {
		for d, t := range r.Cluster.Devices {
			if d > 0 && t == r.Cluster.Devices[d-1] {
				continue
			}
			if _, _, err := p.At(t, size); err != nil {
				return false
			}
		}
		return true
	}
	if m := r.Fix.MicroBatch; m > 0 {
		if _, _, err := p.At(device, m); err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
		if !knows(m) {
			return nil, fmt.Errorf("tune: the profile of %s does not know micro-batches of %d samples on every device type "+
				"of %s", p.Model, m, r.Cluster.Name)
		}
		return []int{m}, nil
	}
	var sizes []int
	for _, size := range p.Sizes(device) {
		if r.Batch%size == 0 && knows(size) {
			sizes = append(sizes, size)
		}
	}
	if len(sizes) < 3 {
		for _, size := range plan.Divisors(r.Batch) {
			if !slices.Contains(sizes, size) && knows(size) {
				sizes = append(sizes, size)
			}
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("tune: none of the profiled micro-batch sizes %v divides a batch of %d; change the batch "+
			"or profile other sizes", p.Sizes(device), r.Batch)
	}
	slices.Sort(sizes)
	for len(sizes) > maxSizes { // thin out evenly
		var kept []int
		for i, size := range sizes {
			if i%2 == 0 || i == len(sizes)-1 {
				kept = append(kept, size)
			}
		}
		sizes = kept
	}
	return sizes, nil
}

// admits says whether a family has a synchronous order for two stages on two workers. It is false if the fixed weight
// policy has no flush.
func (s *space) admits(f family.Family) bool {
	if !s.Fix.Weights.Synchronous() {
		return false
	}
	_, err := family.Generate(f.Name, schedule.Settings{Placement: [][]int{{0}, {1}}, MicroBatches: 4,
		Weights: schedule.Sync})
	return err == nil
}

// streams says whether all devices are FPGA boards, which compute and transfer at the same time.
func (s *space) streams() bool {
	for _, t := range s.Cluster.Devices {
		if s.Cluster.DeviceTypes[t].FPGA == nil {
			return false
		}
	}
	return true
}

// crowded says whether sums during a backward would slow it down, because workers share cores. The simulator does not
// model this.
func (s *space) crowded() bool { return s.Cluster.Crowded(len(s.Cluster.Devices)) }

// suits says whether a family's order can gain anything on these devices. On a single one no order can.
func (s *space) suits(f family.Family) bool {
	return len(s.Cluster.Devices) > 1 && (!f.Streaming || s.streams()) && (!f.Beside || !s.crowded())
}

// searched says whether the search already tries a family's plans, either because it searches the family's depths or as
// data parallelism.
func (s *space) searched(f family.Family) bool {
	_, byDepth := s.families[f.Name]
	return byDepth || roles.WholeModel(f)
}

// replicas says whether a stage of a pipeline may be on several devices.
func (s *space) replicas() bool { return s.Fix.Warmup == nil }

// replicated describes n replicas of a stage, and what they shard.
func (s *space) replicated(n int) memory.Replicas { return memory.Replicas{N: n, Shard: s.Fix.Shard} }

// same says whether a stage runs equally well on both devices, apart from its links to neighbours.
func (s *space) same(a, b int) bool {
	return s.Cluster.Devices[a] == s.Cluster.Devices[b] && s.Cluster.MemoryBytes(a) == s.Cluster.MemoryBytes(b)
}

// policies returns the policies to try a family under: the fixed one, or all that train as intended. Policies that are
// not synchronous are tried only with Request.Async, or if the family is the fixed schedule. Naive updates, a negative
// control, are tried only if their policy is fixed. For two kinds of policies Request.Async is not enough: the family
// must be the fixed schedule, or the policy must be fixed. In the first kind, pipelines run side by side. They train on
// several batches a step, and tune/avgpipe compares them. In the second kind, workers run independently. They produce
// different weights each time.
func (s *space) policies(f family.Family) []schedule.Policy {
	all := roles.PoliciesOf(f)
	if s.Fix.Weights != "" {
		if !slices.Contains(all, s.Fix.Weights) {
			return nil
		}
		return []schedule.Policy{s.Fix.Weights}
	}
	var out []schedule.Policy
	for _, w := range all {
		if w.Synchronous() || !w.Mismatches() && (s.Async && !w.Averages() && !w.Served() || s.Fix.Schedule == f.Name) {
			out = append(out, w)
		}
	}
	return out
}

// recomputes lists what all stages may recompute at first: nothing, then everything, or only the fixed choice.
// Request.Check has reported errors in the fixed choice.
func (s *space) recomputes() []plan.Recompute {
	if fixed, ok, _ := s.Fix.FixedRecompute(); ok {
		return []plan.Recompute{fixed}
	}
	return []plan.Recompute{plan.KeepAll, plan.KeepInput}
}

// baseSizes returns the micro-batch sizes for baselines. With up to 16 devices these are all sizes. With more, it is
// only the largest size with at least four micro-batches for each device, or else the smallest size.
func (s *space) baseSizes() []int {
	if len(s.Cluster.Devices) <= 16 {
		return s.sizes
	}
	best := s.sizes[0]
	for _, size := range s.sizes {
		if s.Batch/size >= 4*len(s.Cluster.Devices) {
			best = size
		}
	}
	return []int{best}
}

// stageCounts returns the numbers of stages to try: all from 2 to 16, then powers of two and the largest.
func (s *space) stageCounts() []int {
	if s.Fix.Stages > len(s.Cluster.Devices) {
		return nil // a worker would hold several stages; families that allow several choose their workers themselves
	}
	if s.Fix.Stages > 0 {
		return []int{s.Fix.Stages}
	}
	var counts []int
	for S, most := 2, min(len(s.Cluster.Devices), len(s.Profile.Layers)); S <= most; S++ {
		if S <= 16 || S&(S-1) == 0 || S == most {
			counts = append(counts, S)
		}
	}
	return counts
}

// varies says whether some cost of the profile has a spread, so that simulated steps differ.
func (s *space) varies() bool {
	for _, l := range s.Profile.Layers {
		if slices.ContainsFunc(l.Costs, func(c profile.Cost) bool { return c.Spread > 0 }) {
			return true
		}
	}
	return false
}

// deviceOrders returns the orders of devices in which partitions are tried. The first is the cluster's. If devices
// differ, there are two more: one with the fastest devices first, and one with them last. If all devices are equal and
// in several groups, one more order takes one device of each group in turn (DAPPLE's Scatter First, §4.2). A stage's
// replicas are then in all groups, next to those of the following stage.
func (s *space) deviceOrders() [][]int {
	var own []int
	for d := range s.Cluster.Devices {
		own = append(own, d)
	}
	orders := [][]int{own}
	if inside := s.Cluster.Levels[0].Size; !s.mixed && inside > 1 && inside < len(own) {
		var scattered []int
		for first := range inside {
			for d := first; d < len(own); d += inside {
				scattered = append(scattered, d)
			}
		}
		orders = append(orders, scattered)
	}
	if !s.mixed {
		return orders
	}
	n, size := len(s.Profile.Layers), s.sizes[len(s.sizes)-1]
	speed := func(d int) float64 {
		forward, backward := s.tables.of(s.Cluster.Devices[d], size).time(0, n, plan.KeepAll)
		return forward + backward
	}
	for _, sign := range []float64{1, -1} {
		by := slices.Clone(own)
		slices.SortStableFunc(by, func(a, b int) int {
			switch v := sign * (speed(a) - speed(b)); {
			case v < 0:
				return -1
			case v > 0:
				return 1
			}
			return 0
		})
		if !slices.ContainsFunc(orders, func(o []int) bool { return slices.Equal(o, by) }) {
			orders = append(orders, by)
		}
	}
	return orders
}

// sums caches the times of all-reduces over runs of devices. The times are nearly linear in the bytes, so two points
// for each run are enough.
type sums struct {
	c    *cluster.Cluster
	have map[[2]int][2]float64
}

// line returns the time of an all-reduce over `count` devices of an order, beginning at position `at`: fixed seconds,
// and seconds per byte.
func (a *sums) line(order []int, at, count int) [2]float64 {
	if count < 2 {
		return [2]float64{}
	}
	const large = 1 << 30
	key := [2]int{at, count}
	line, ok := a.have[key]
	if !ok {
		none, all := a.c.AllReduceS(order[at:at+count], 0), a.c.AllReduceS(order[at:at+count], large)
		line = [2]float64{none, (all - none) / large}
		a.have[key] = line
	}
	return line
}

// sumsOf returns the all-reduce times along one of the orders.
func (s *space) sumsOf(order []int) *sums {
	if s.sums[&order[0]] == nil {
		s.sums[&order[0]] = &sums{c: s.Cluster, have: map[[2]int][2]float64{}}
	}
	return s.sums[&order[0]]
}

// boundKind returns the kind of bounds for plans like `pl`. The strongest kind is for synchronous plans of whole layers
// in the profile's order, with one stage a device and backwards in one piece. Other plans, and those of families for
// boards or with collectives beside computations, get a weaker kind.
func (s *space) boundKind(pl *plan.Plan) bound.Kind {
	k := bound.Kind{Workers: len(s.Cluster.Devices), Batch: s.Batch * pl.Together(), Sizes: s.sizes}
	if !slices.Contains(k.Sizes, pl.MicroBatch) {
		k.Sizes = append(slices.Clone(k.Sizes), pl.MicroBatch)
	}
	places := 0
	for _, st := range pl.Stages {
		places += len(st.Devices)
		k.Loose = k.Loose || st.FirstFraction > 0 || st.LastFraction > 0
	}
	if f, err := family.Lookup(pl.Schedule); err == nil {
		k.Loose = k.Loose || f.Streaming || f.Beside || roles.SeveralStages(f)
		k.Halves = f.Halves
	}
	k.Loose = k.Loose || pl.Order != nil
	k.Loose = k.Loose || places > len(pl.Devices()) || !schedule.Policy(pl.Weights).Synchronous()
	return k
}
