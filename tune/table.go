package tune

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// table is sums over runs of layers on one device type at one number of rows: what a stage
// of layers from..to-1 costs is one subtraction.
type table struct {
	forward, backward, update []float64 // seconds
	fixed, saved, gradients   []int64   // bytes; fixed is parameters, optimizer states and buffers
	cut                       []int64   // bytes that cross the cut before each layer
	costs                     []profile.Cost
	widest                    []int64 // of each blockOf layers, what the one that needs most needs while it runs
}

// blockOf is the layers of which a table keeps the widest.
const blockOf = 64

// running is what a layer needs while it runs, beside what it saves.
func running(c *profile.Cost) int64 { return max(c.WorkspaceBytes, c.BackwardPeakBytes-c.SavedBytes) }

// work is the most that a layer of from..to-1 needs while it runs, 0 at least.
func (t *table) work(from, to int) int64 {
	most := int64(0)
	for k := from; k < to; {
		if k%blockOf == 0 && k+blockOf <= to {
			most = max(most, t.widest[k/blockOf])
			k += blockOf
			continue
		}
		most = max(most, running(&t.costs[k]))
		k++
	}
	return most
}

func (t *table) time(from, to int, again plan.Recompute) (forward, backward float64) {
	forward, backward = t.forward[to]-t.forward[from], t.backward[to]-t.backward[from]
	if again.Again() {
		backward += forward
	}
	return forward, backward
}

// memory is about what a stage holds with so many micro-batches in flight: the simulator
// knows better, and this never decides alone.
func (t *table) memory(from, to, depth int, again plan.Recompute) int64 {
	held := t.saved[to] - t.saved[from]
	always := t.fixed[to] - t.fixed[from] + t.gradients[to] - t.gradients[from] + t.work(from, to)
	if k := again.Segment(to - from); k > 0 {
		kept, segment := t.cut[from], int64(0)
		for at := from; at < to; at += k {
			if at > from {
				kept += t.cut[at]
			}
			segment = max(segment, t.saved[min(at+k, to)]-t.saved[at])
		}
		return always + int64(depth)*kept + segment
	}
	return always + int64(depth)*(t.cut[from]+held)
}

// tables makes and keeps the tables of a profile. A nil table is a size that the profile
// has no costs for.
type tables struct {
	p    *profile.Profile
	have map[tableKey]*table
	last []int // the last layer that reads each layer's output
}

type tableKey struct {
	device string
	rows   int
}

func newTables(p *profile.Profile) *tables {
	t := &tables{p: p, have: map[tableKey]*table{}, last: make([]int, len(p.Layers))}
	for l, layer := range p.Layers {
		for _, from := range layer.From {
			if from >= 0 {
				t.last[from] = l
			}
		}
	}
	return t
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
		forward: make([]float64, n+1), backward: make([]float64, n+1), update: make([]float64, n+1),
		fixed: make([]int64, n+1), saved: make([]int64, n+1), gradients: make([]int64, n+1), cut: make([]int64, n+1), costs: costs, widest: make([]int64, n/blockOf+1),
	}
	for k, c := range costs {
		layer := &t.p.Layers[k]
		out.forward[k+1] = out.forward[k] + c.ForwardS
		out.backward[k+1] = out.backward[k] + c.BackwardS
		out.update[k+1] = out.update[k] + layer.UpdateS
		own := layer.ParameterBytes + layer.TiedBytes
		out.fixed[k+1] = out.fixed[k] + own*int64(1+t.p.OptimizerStates) + layer.BufferBytes
		out.gradients[k+1] = out.gradients[k] + own
		out.saved[k+1] = out.saved[k] + c.SavedBytes
		out.widest[k/blockOf] = max(out.widest[k/blockOf], running(&c))
		if last := t.last[k]; last > k { // crosses the cuts before layers k+1..last
			out.cut[k+1] += c.OutputBytes
			if last+1 <= n {
				out.cut[last+1] -= c.OutputBytes
			}
		}
	}
	for k := 1; k <= n; k++ {
		out.cut[k] += out.cut[k-1]
	}
	return out
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
