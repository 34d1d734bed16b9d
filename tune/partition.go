package tune

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim/memory"
)

// cutter cuts the layers of a space into stages.
type cutter struct{ *space }

// want describes the partition to find.
type want struct {
	stages, devices int  // devices in total; if equal to stages, the pipeline is straight
	all             bool // also return partitions into fewer stages, on the same devices
	size            int
	split           bool
	again           plan.Recompute
	family          family.Family
	order           []int
	replicas        []int // allowed numbers of replicas of a stage
	each            []int // numbers of replicas of the stages, if they are fixed; replicas[0] is then the least of them
	fits            bool  // leave out stages that do not fit their devices, approximately
	leanest         bool  // look for the least memory instead of the least time
	alone           bool  // no pipelining: minimise the sum of the times of stages and transfers, not the largest
}

// with returns the time of some stages together with one more stage or transfer. It is the sum of the two times if
// `alone` is set, and otherwise the larger one.
func (w want) with(stages, more float64) float64 {
	if w.alone {
		return stages + more
	}
	return max(stages, more)
}

// maxCuts is the largest number of places where a partition may cut. maxReplicatedCuts is that number if stages have
// replicas. If there are more layers, the places divide them into runs of about equal time. improve then moves single
// layers.
const maxCuts, maxReplicatedCuts = 200, 64

// allowed returns the numbers of replicas that stage i may have.
func (w want) allowed(i int) []int {
	if w.each != nil {
		return w.each[i : i+1]
	}
	return w.replicas
}

// partition cuts the layers into stages with replicas. It minimises the time that the slowest stage or transfer takes
// for a micro-batch, or what `alone` or `leanest` name instead. It returns nothing if no partition is possible. Devices
// are in the given order.
//
// best(i, j, d) is the least time of the layers before j, in i stages on the first d devices. It is the minimum over k
// and r of max(best(i-1, k, d-r), stage k..j-1 on r devices). The result is exact under two simplifications: an
// all-reduce is spread evenly over the step's micro-batches, and filling the pipeline takes no time. The estimator
// assumes neither.
func (c cutter) partition(w want) []*shape {
	at := c.places(w.size, w.devices > w.stages)
	n, D := len(at)-1, w.devices
	if n < w.stages {
		return nil
	}
	one := len(w.replicas) == 1 && !w.all && w.each == nil // i stages are always on replicas[0] times as many devices
	best := newPrefixes(w.stages, n, D, one)
	for i := range w.stages {
		for d := i; d < D; d++ {
			if one && d != i*w.replicas[0] {
				continue
			}
			for _, r := range w.allowed(i) {
				if d+r > D || !w.all && (d+r+(w.stages-1-i)*w.replicas[0] > D || i == w.stages-1 && d+r != D) {
					continue
				}
				stage := c.stager(w, i, d, r)
				if stage == nil {
					continue
				}
				from, to := i+1, n
				if !w.all {
					to = n - (w.stages - 1 - i)
				}
				if i == w.stages-1 || d+r == D {
					from = n // stage i is the last one
				}
				for j := from; j <= to; j++ {
					least := best.of(i+1, j, d+r)
					for k := j - 1; k >= i; k-- {
						if !w.leanest && stage.compute(at[k], at[j]) >= least.value {
							break // more layers take longer
						}
						so := best.of(i, k, d).value
						if so >= least.value {
							continue
						}
						if v := w.with(so, stage.cost(at[k], at[j])); v < least.value {
							*least = prefix{v, k, d}
						}
					}
				}
			}
		}
	}
	var out []*shape
	for S := w.stages; S >= 1; S-- {
		if S < w.stages && (!w.all || S < 2) {
			break
		}
		if math.IsInf(best.of(S, n, D).value, 1) {
			continue
		}
		h := &shape{
			cuts: make([]int, S+1), counts: make([]int, S), order: w.order, again: make([]plan.Recompute, S),
			size: w.size, split: w.split, family: w.family.Name,
		}
		for i, j, d := S, n, D; i > 0; i-- {
			c := best.of(i, j, d)
			h.cuts[i], h.counts[i-1], h.again[i-1] = at[j], d-c.devices, w.again
			j, d = c.places, c.devices
		}
		h.depth = depths(h.counts, w.split, w.family.Warmup, c.Batch/w.size)
		out = append(out, h)
	}
	return out
}

// prefix is the least time of the first few stages. To find the cuts again, it says where the stages before the last of
// them end: at the cut place with index `places`, on the first `devices` devices.
type prefix struct {
	value           float64
	places, devices int
}

// prefixes is the table of best(i, j, d); see partition.
type prefixes struct {
	rows  [][]prefix // by i, and then by j and d
	width int        // number of d values kept for each j
}

// newPrefixes returns a table for the given stages, places and devices. All times are infinite, except that zero stages
// take 0 s. If `one` is set, the number of stages determines the number of devices. The table then has no dimension for
// devices.
func newPrefixes(stages, places, devices int, one bool) prefixes {
	t := prefixes{rows: make([][]prefix, stages+1), width: devices + 1}
	if one {
		t.width = 1
	}
	for i := range t.rows {
		t.rows[i] = make([]prefix, (places+1)*t.width)
		for j := range t.rows[i] {
			t.rows[i][j].value = math.Inf(1)
		}
	}
	t.rows[0][0].value = 0
	return t
}

// of returns the entry for the first stages before a place to cut, on the first devices.
func (t *prefixes) of(stages, place, devices int) *prefix {
	if t.width == 1 {
		devices = 0
	}
	return &t.rows[stages][place*t.width+devices]
}

// places lists the positions where a partition may cut, including 0 and the end.
func (c cutter) places(size int, replicated bool) []int {
	n, most := len(c.Profile.Layers), maxCuts
	if c.Fix.Split != nil {
		return slices.Concat([]int{0}, c.Fix.Split, []int{n})
	}
	if replicated {
		most = maxReplicatedCuts
	}
	t := c.tables.of(c.Cluster.Devices[0], size)
	var at []int
	if n <= most || t == nil {
		for k := range n + 1 {
			at = append(at, k)
		}
		return at
	}
	before := func(k int) float64 { forward, backward := t.time(0, k, plan.KeepAll); return forward + backward }
	next := 0.0
	for k := range n {
		if done := before(k); done >= next || k == 0 {
			at = append(at, k)
			next = max(next+before(n)/float64(most), done)
		}
	}
	return append(at, n)
}

// stager computes the costs of one stage, for any run of layers. The stage is on r consecutive devices of the order of
// devices.
type stager struct {
	w       want
	r       int
	tables  []*table
	limit   int64
	depth   int
	m       int
	sum     [2]float64 // all-reduce: fixed seconds, and seconds per byte
	whole   *table     // of the first device, for the bytes that cross cuts
	perByte float64    // seconds per byte of a transfer from the device before
	divides memory.Replicas
}

// stager returns the costs of stage i on r devices from position d. It returns nil if some device has no costs for its
// number of rows, or if the first device has no costs for a whole micro-batch.
func (c cutter) stager(w want, i, d, r int) *stager {
	out := &stager{w: w, r: r, limit: math.MaxInt64, m: c.Batch / w.size, divides: c.replicated(r)}
	rows := w.size
	if w.split {
		rows = (w.size + r - 1) / r
	}
	for _, device := range w.order[d : d+r] {
		t := c.tables.of(c.Cluster.Devices[device], rows)
		if t == nil {
			return nil
		}
		if len(out.tables) == 0 || out.tables[len(out.tables)-1] != t {
			out.tables = append(out.tables, t)
		}
		if limit := c.Cluster.MemoryBytes(device); limit > 0 {
			out.limit = min(out.limit, limit)
		}
	}
	if w.split {
		out.depth = w.family.Warmup(w.stages, out.m)[i]
	} else {
		out.depth = (w.family.Warmup(w.devices, out.m)[d] + r - 1) / r
	}
	if out.depth = min(max(1, out.depth), out.m); w.alone {
		out.depth = 1
	}
	out.sum = c.sumsOf(w.order).line(w.order, d, r)
	out.whole = c.tables.of(c.Cluster.Devices[w.order[0]], w.size)
	if d > 0 {
		_, taken := c.Cluster.Transfer(w.order[d-1], w.order[d], 1<<30)
		out.perByte = taken / (1 << 30)
	}
	if out.whole == nil {
		return nil
	}
	return out
}

// compute returns the time that the stage computes for a micro-batch. It is at most the stage's cost, unless `leanest`
// is set.
func (t *stager) compute(from, to int) float64 {
	slowest := 0.0
	for _, table := range t.tables {
		f, b := table.time(from, to, t.w.again)
		slowest = max(slowest, f+b)
	}
	if !t.w.split {
		slowest /= float64(t.r)
	}
	return slowest
}

func (t *stager) cost(from, to int) float64 {
	if t.w.leanest {
		held := t.tables[0].Held(from, to, t.depth, t.w.again, t.divides)
		if t.limit < math.MaxInt64 {
			return float64(held) / float64(t.limit)
		}
		return float64(held)
	}
	if t.w.fits && t.limit < math.MaxInt64 {
		for _, table := range t.tables {
			if table.Held(from, to, t.depth, t.w.again, t.divides) > t.limit {
				return math.Inf(1)
			}
		}
	}
	v := t.compute(from, to)
	if t.r > 1 {
		v += (t.sum[0] + t.sum[1]*float64(t.tables[0].Gradients[to]-t.tables[0].Gradients[from])) / float64(t.m)
	}
	if from > 0 {
		sent := t.perByte * float64(t.whole.crosses[from]) / float64(t.r)
		if t.w.alone {
			return v + 2*sent // activations and gradients, without overlap
		}
		v = max(v, sent)
	}
	return v
}
