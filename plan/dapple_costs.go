package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// dappleCosts answers what a stage or a transfer takes, for one micro-batch size.
type dappleCosts struct {
	p  *profile.Profile
	c  *cluster.Cluster
	at *servers
	M  int
	mb int

	types       []string    // device types of the cluster
	typeOf      []int       // by device
	forward     [][]float64 // by type, prefix sums over layers
	backward    [][]float64
	parameters  []int64 // prefix sums over layers
	fixed       []int64 // parameters, gradients, the optimizer's copies, buffers
	saved       []int64 // activations of one micro-batch
	cut         []int64 // bytes that cross before a layer
	workspace   int64   // the widest layer's
	recompute   string  // auto, yes, no
	groupCache  map[string]dappleGroup
	streamCache map[string]affine
}

// affine is seconds as latency and seconds a byte.
type affine struct{ fixedS, perByteS float64 }

func (a affine) of(bytes float64) float64 { return a.fixedS + bytes*a.perByteS }

// dappleGroup is what counts of a stage's devices.
type dappleGroup struct {
	devices []int
	types   []int // that are among them
	memory  int64 // of the smallest; 0: no limit
	reduce  [2]affine
}

func newDappleCosts(p *profile.Profile, c *cluster.Cluster, at *servers, batch, mb int, recompute string) (*dappleCosts, error) {
	n := len(p.Layers)
	d := &dappleCosts{
		p: p, c: c, at: at, M: batch / mb, mb: mb, recompute: recompute,
		parameters: make([]int64, n+1), fixed: make([]int64, n+1), saved: make([]int64, n+1), cut: make([]int64, n+1),
		groupCache: map[string]dappleGroup{}, streamCache: map[string]affine{},
	}
	for _, t := range c.Devices {
		i := slices.Index(d.types, t)
		if i < 0 {
			costs, _, err := p.At(t, mb)
			if err != nil {
				return nil, fmt.Errorf("plan: dapple: %w", err)
			}
			if i = len(d.types); i == 0 {
				d.sizes(costs)
			}
			d.types = append(d.types, t)
			f, b := make([]float64, n+1), make([]float64, n+1)
			for k := range costs {
				f[k+1], b[k+1] = f[k]+costs[k].ForwardS, b[k]+costs[k].BackwardS
			}
			d.forward, d.backward = append(d.forward, f), append(d.backward, b)
		}
		d.typeOf = append(d.typeOf, i)
	}
	return d, nil
}

// sizes fills in bytes, which all device types share.
func (d *dappleCosts) sizes(costs []profile.Cost) {
	n := len(costs)
	ends := make([]int64, n+1) // outputs whose last reader is a layer
	live := int64(0)
	last := make([]int, n)
	for k, l := range d.p.Layers {
		for _, from := range l.From {
			if from >= 0 {
				last[from] = k
			}
		}
	}
	for k, l := range d.p.Layers {
		d.cut[k] = live
		if last[k] > k {
			live += costs[k].OutputBytes
			ends[last[k]] += costs[k].OutputBytes
		}
		live -= ends[k]
		d.parameters[k+1] = d.parameters[k] + l.ParameterBytes
		d.fixed[k+1] = d.fixed[k] + (l.ParameterBytes+l.TiedBytes)*int64(2+d.p.OptimizerStates) + l.BufferBytes
		d.saved[k+1] = d.saved[k] + costs[k].SavedBytes
		d.workspace = max(d.workspace, costs[k].WorkspaceBytes)
	}
}

// group is the devices between two counts, and what matters of them.
func (d *dappleCosts) group(before, after taken) dappleGroup {
	key := before.key() + after.key()
	if g, ok := d.groupCache[key]; ok {
		return g
	}
	g := d.groupOf(d.at.between(before, after))
	d.groupCache[key] = g
	return g
}

func (d *dappleCosts) groupOf(devices []int) dappleGroup {
	g := dappleGroup{devices: devices}
	for _, dev := range devices {
		if !slices.Contains(g.types, d.typeOf[dev]) {
			g.types = append(g.types, d.typeOf[dev])
		}
		if m := d.c.MemoryBytes(dev); m > 0 && (g.memory == 0 || m < g.memory) {
			g.memory = m
		}
	}
	// Both ways to all-reduce are straight lines in the bytes where the links of one ring
	// are alike, and never above this line where they are not.
	const far = 1 << 40
	for i, reduce := range []func([]int, int64) float64{d.c.HierarchicalAllReduceS, d.c.RingAllReduceS} {
		zero := reduce(devices, 0)
		g.reduce[i] = affine{zero, (reduce(devices, far) - zero) / far}
	}
	return g
}

func (g *dappleGroup) allReduceS(bytes float64) float64 {
	if len(g.devices) < 2 {
		return 0
	}
	return min(g.reduce[0].of(bytes), g.reduce[1].of(bytes))
}

// stage is layers from..to-1 on a group, whose replicas split every micro-batch, and
// whether it fits: with one micro-batch in flight, after recompute where that is allowed.
// Of several device types the slowest decides.
func (d *dappleCosts) stage(from, to int, g *dappleGroup) (s dappleStage, again, fits bool) {
	r := float64(len(g.devices))
	for _, t := range g.types {
		s.F = max(s.F, (d.forward[t][to]-d.forward[t][from])/r)
		s.B = max(s.B, (d.backward[t][to]-d.backward[t][from])/r)
	}
	s.AR = g.allReduceS(float64(d.parameters[to] - d.parameters[from]))
	again, fits = d.recompute == "yes", d.depth(from, to, g, d.recompute == "yes") > 0
	if !fits && d.recompute == "auto" {
		again, fits = true, d.depth(from, to, g, true) > 0
	}
	if again {
		s.B += s.F
	}
	return s, again, fits && len(g.devices) <= d.mb
}

// depth is D of §5.3: how many micro-batches' activations fit beside weights, gradients,
// the optimizer and a layer's workspace on the smallest device of a group.
func (d *dappleCosts) depth(from, to int, g *dappleGroup, again bool) int {
	if g.memory == 0 {
		return d.M
	}
	r := int64(len(g.devices))
	slice := func(bytes int64) int64 { return (bytes + r - 1) / r }
	left := g.memory - (d.fixed[to] - d.fixed[from]) - slice(d.workspace)
	each := slice(d.cut[from] + d.saved[to] - d.saved[from])
	if again {
		left -= slice(d.saved[to] - d.saved[from])
		each = slice(d.cut[from])
	}
	if left < 0 {
		return 0
	}
	if each == 0 {
		return d.M
	}
	return int(min(int64(d.M), left/each))
}

// network is the stage between two: the activations of a micro-batch one way, their
// gradients back.
func (d *dappleCosts) network(a affine, before int) dappleStage {
	t := a.of(float64(d.cut[before]))
	return dappleStage{F: t, B: t}
}

// stream is how long a byte is under way from all devices of one stage, that have even
// slices of it, to all of another, that take even slices (split/concat, §5.2). Every sender
// talks to every receiver at once; what leaves or enters a group of devices shares its
// links, one for each device of the stage in it, or one for the group where the level's
// uplinks are shared.
func (d *dappleCosts) stream(from, to []int) affine {
	var a affine
	ra, rb := float64(len(from)), float64(len(to))
	total := len(d.typeOf)
	inner := 1
	for _, l := range d.c.Levels {
		outer := inner * l.Size
		senders, receivers := count(from, inner, total), count(to, inner, total)
		sendersIn, receiversIn := count(from, outer, total), count(to, outer, total)
		// Through this level goes what stays in the outer group and leaves the inner one.
		load := func(mine, others, outside []float64, rm, ro float64) {
			for g, n := range mine {
				if n == 0 {
					continue
				}
				part, links := n/rm*(outside[g*inner/outer]-others[g])/ro, n
				if part <= 0 {
					continue
				}
				switch {
				case l.Shared:
					part, links = 1, 1
				case l.Uplinks:
					links = 1
				}
				a.perByteS = max(a.perByteS, part/links/l.BandwidthBytesPerSecond)
				a.fixedS = max(a.fixedS, l.LatencyS)
			}
		}
		load(senders, receivers, receiversIn, ra, rb)
		load(receivers, senders, sendersIn, rb, ra)
		inner = outer
	}
	return a
}

// count is how many of some devices each group of a size holds.
func count(devices []int, size, total int) []float64 {
	n := make([]float64, (total+size-1)/size)
	for _, dev := range devices {
		n[dev/size]++
	}
	return n
}

// bound is a step that no plan of these layers on these devices beats: all devices
// computing without pause, each type at its own speed.
func (d *dappleCosts) bound() float64 {
	n, rate := len(d.p.Layers), 0.0
	for _, t := range d.typeOf {
		rate += 1 / max(d.forward[t][n]+d.backward[t][n], math.SmallestNonzeroFloat64)
	}
	return float64(d.M) / rate
}
