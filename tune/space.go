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

// space is what a search chooses from: a request and the choices that it leaves open. Nothing changes it.
type space struct {
	Request
	sizes     []int                    // micro-batch sizes to try
	families  map[string]family.Family // that are searched by depths
	pipelines family.Family            // takes any depths
	undivided family.Family            // has the whole model on every worker
	mixed     bool                     // devices differ
	orders    [][]int                  // of devices
	tables    *tables
	sums      map[*int]*sums // by order
}

// newSpace refuses requests that contradict themselves, and settles what they fix.
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
		r.Fix.Schedule = f.Name
	}
	if err := r.settleWeights(); err != nil {
		return nil, err
	}
	s := &space{
		Request: r, pipelines: roles.Pipelines(), undivided: roles.Undivided(), families: map[string]family.Family{},
		sums: map[*int]*sums{},
	}
	estimated := r.Profile // by which tables rank: sim.CostsOf has plans compute scores again by themselves
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

// maxSizes bounds the micro-batch sizes that are tried.
const maxSizes = 10

// microBatches lists the sizes to try, ascending: those profiled for every device type that
// divide the batch; of a profile that has one or two alone, other divisors too, if it says what they cost.
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

// admits says whether a family gives two stages on two workers a synchronous order.
func (s *space) admits(f family.Family) bool {
	if !s.Fix.Weights.Synchronous() {
		return false
	}
	_, err := family.Generate(f.Name, schedule.Settings{Placement: [][]int{{0}, {1}}, MicroBatches: 4,
		Weights: schedule.Sync})
	return err == nil
}

// streams says whether all devices compute and transfer at once as FPGA boards do.
func (s *space) streams() bool {
	for _, t := range s.Cluster.Devices {
		if s.Cluster.DeviceTypes[t].FPGA == nil {
			return false
		}
	}
	return true
}

// crowded says whether sums beside a backward are at the cost of it, which the simulator does not see.
func (s *space) crowded() bool { return s.Cluster.Crowded(len(s.Cluster.Devices)) }

// suits says whether the devices are such that a family's order gains anything on them.
func (s *space) suits(f family.Family) bool {
	return (!f.Streaming || s.streams()) && (!f.Beside || !s.crowded())
}

// searched says whether a family's plans are tried by their depths, or as data parallelism.
func (s *space) searched(f family.Family) bool {
	_, byDepth := s.families[f.Name]
	return byDepth || roles.WholeModel(f)
}

// replicas says whether stages of a pipeline may be on several devices.
func (s *space) replicas() bool { return s.Fix.Warmup == nil }

// replicated describes n replicas of a stage, and what they divide.
func (s *space) replicated(n int) memory.Replicas { return memory.Replicas{N: n, Shard: s.Fix.Shard} }

// same says whether it makes no difference which of two devices a stage is on, its
// neighbours apart.
func (s *space) same(a, b int) bool {
	return s.Cluster.Devices[a] == s.Cluster.Devices[b] && s.Cluster.MemoryBytes(a) == s.Cluster.MemoryBytes(b)
}

// policies are those to try a family under: the one that is fixed, or all that train as
// intended. Naive updates are a negative control, not a choice; pipelines side by side train on
// several batches a step, and are compared by tune/avgpipe; and workers that go their own way leave other weights each
// time, which is for whoever asks for it.
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

// recomputes lists what all stages may recompute to begin with: nothing first, then all. What
// is fixed is read by Request's check.
func (s *space) recomputes() []plan.Recompute {
	if fixed, ok, _ := s.Fix.FixedRecompute(); ok {
		return []plan.Recompute{fixed}
	}
	return []plan.Recompute{plan.KeepAll, plan.KeepInput}
}

// baseSizes are the micro-batch sizes that baselines are simulated for: all of a few, and of many
// devices those nearest to four micro-batches for each.
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

// stageCounts are the numbers of stages to try: all up to 16, then powers of two and the most.
func (s *space) stageCounts() []int {
	if s.Fix.Stages > len(s.Cluster.Devices) {
		return nil // a worker would hold several, which the families that have that place themselves
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

// varies says whether a computation of the profile has a spread: then a simulated step is one of
// many.
func (s *space) varies() bool {
	for _, l := range s.Profile.Layers {
		if slices.ContainsFunc(l.Costs, func(c profile.Cost) bool { return c.Spread > 0 }) {
			return true
		}
	}
	return false
}

// deviceOrders are the orders of devices that partitions are tried in: the cluster's, where devices differ the fastest
// first and the fastest last, and of devices in several groups one of each group after the other (DAPPLE's Scatter
// First, §4.2), so that a stage's replicas are in all of them and the next stage's beside these.
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

// sums is how long an all-reduce takes among runs of devices, which is nearly a straight
// line in the bytes: two points of it are asked of the cluster for each run.
type sums struct {
	c    *cluster.Cluster
	have map[[2]int][2]float64
}

// line is seconds among count devices of order from at on: for nothing, and for each byte.
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

// sumsOf is the all-reduce times along one of the orders.
func (s *space) sumsOf(order []int) *sums {
	if s.sums[&order[0]] == nil {
		s.sums[&order[0]] = &sums{c: s.Cluster, have: map[[2]int][2]float64{}}
	}
	return s.sums[&order[0]]
}

// boundKind is what Bound is asked for plans like this one: whole layers, one stage a
// device, a backward in one piece, or less.
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
