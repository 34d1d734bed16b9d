package plan

import (
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// dapplePlaces is where stages may be: the sets of devices that the placements reach, and
// what a stage on some of them, and a transfer between two, costs by the byte. It knows no
// layers, so that the searches of all micro-batch sizes share it. Sets are worked out as
// they are asked for.
type dapplePlaces struct {
	c      *cluster.Cluster
	at     *servers
	types  []string // device types of the cluster
	typeOf []int    // by device

	number map[string]int32 // of a set, by what is taken
	sets   []dappleSet
	moves  []dappleMove
}

// dappleSet is the devices that the stages of a prefix have taken.
type dappleSet struct {
	taken    taken
	used     int
	rest     dappleGroup // all others
	extended bool
	first    int32 // of its moves, and how many
	moves    int
}

// dappleMove is one more stage behind a set.
type dappleMove struct {
	to   int32 // the set with it
	mine dappleGroup
	rest affine   // how what it sends gets to all devices that are left
	next []affine // how it gets to the devices of each move behind; nil until asked for
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

func newDapplePlaces(c *cluster.Cluster, at *servers) *dapplePlaces {
	d := &dapplePlaces{c: c, at: at, number: map[string]int32{}}
	for _, t := range c.Devices {
		i := slices.Index(d.types, t)
		if i < 0 {
			i = len(d.types)
			d.types = append(d.types, t)
		}
		d.typeOf = append(d.typeOf, i)
	}
	return d
}

func (d *dapplePlaces) full() taken {
	t := d.at.none()
	for i := range t {
		t[i] = uint16(d.at.size(i))
	}
	return t
}

// set numbers what is taken.
func (d *dapplePlaces) set(t taken) int32 {
	key := t.key()
	if n, ok := d.number[key]; ok {
		return n
	}
	used := 0
	for _, n := range t {
		used += int(n)
	}
	n := int32(len(d.sets))
	d.number[key] = n
	d.sets = append(d.sets, dappleSet{taken: t, used: used, rest: d.groupOf(d.at.between(t, d.full()))})
	return n
}

// extend lists the stages that may come behind a set, of the numbers of devices in steps,
// ascending, with some devices left.
func (d *dapplePlaces) extend(set int32, steps []int) []dappleMove {
	s := d.sets[set]
	if !s.extended {
		s.extended, s.first = true, int32(len(d.moves))
		for _, m := range steps {
			if s.used+m >= len(d.typeOf) {
				break
			}
			for _, after := range d.at.place(s.taken, m) {
				to := d.set(after)
				mine := d.groupOf(d.at.between(s.taken, after))
				d.moves = append(d.moves, dappleMove{to: to, mine: mine, rest: d.stream(mine.devices, d.sets[to].rest.devices)})
			}
		}
		s.moves = len(d.moves) - int(s.first)
		d.sets[set] = s
	}
	return d.moves[s.first:][:s.moves]
}

// streams is how what the stage of a move sends gets to the devices of each move behind it.
func (d *dapplePlaces) streams(move int32, behind []dappleMove) []affine {
	m := &d.moves[move]
	if m.next == nil {
		m.next = make([]affine, len(behind))
		for i := range behind {
			m.next[i] = d.stream(m.mine.devices, behind[i].mine.devices)
		}
	}
	return m.next
}

func (d *dapplePlaces) groupOf(devices []int) dappleGroup {
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

// stream is how long a byte is under way from all devices of one stage, that have even
// slices of it, to all of another, that take even slices (split/concat, §5.2). Every sender
// talks to every receiver at once; what leaves or enters a group of devices shares its
// links, one for each device of the stage in it, or one for the group where the level's
// uplinks are shared.
func (d *dapplePlaces) stream(from, to []int) affine {
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
