package dapple

import (
	"encoding/binary"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
)

// places is where stages may be: the sets of devices that the placements reach, and
// what a stage on some of them, and a transfer between two, costs by the byte. It knows no
// layers, so that the searches of all micro-batch sizes share it. Sets are worked out as
// they are asked for.
type places struct {
	c      *cluster.Cluster
	at     *servers.Layout
	types  []string // device types of the cluster
	typeOf []int    // by device

	number map[string]int32 // of a set, by what is taken
	sets   []set
	moves  []move
	groups map[string]group // by their devices

	reduces  map[string][2]cluster.Line // by how many devices are in each server
	shortest []cluster.Line             // see shortestReduces
}

// set is the devices that the stages of a prefix have taken.
type set struct {
	taken    servers.Taken
	used     int
	rest     group // all others
	extended bool
	first    int32 // of its moves, and how many
	moves    int
}

// move is one more stage behind a set.
type move struct {
	to   int32 // the set with it
	step int   // place of its number of devices
	mine group
	rest *cluster.Line  // how what it sends gets to all devices that are left; nil until asked for
	next []cluster.Line // how it gets to the devices of each move behind; nil until asked for
}

// group is what counts of a stage's devices.
type group struct {
	devices []int
	in      [][]int32 // how many are in each group of devices, by level; a device is the innermost
	types   []int     // that are among them
	memory  int64     // of the smallest; 0: no limit
	reduce  [2]cluster.Line
}

func newPlaces(c *cluster.Cluster, at *servers.Layout) *places {
	d := &places{c: c, at: at, number: map[string]int32{}, groups: map[string]group{},
		reduces: map[string][2]cluster.Line{}}
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

// set numbers what is taken.
func (d *places) set(t servers.Taken) int32 {
	key := t.Key()
	if n, ok := d.number[key]; ok {
		return n
	}
	used := 0
	for _, n := range t {
		used += int(n)
	}
	n := int32(len(d.sets))
	d.number[key] = n
	d.sets = append(d.sets, set{taken: t, used: used, rest: d.groupOf(d.at.Between(t, d.at.All()))})
	return n
}

// extend lists the stages that may come behind a set, of the numbers of devices in steps,
// ascending, with some devices left.
func (d *places) extend(set int32, steps []int) []move {
	s := d.sets[set]
	if !s.extended {
		s.extended, s.first = true, int32(len(d.moves))
		for step, m := range steps {
			if s.used+m >= len(d.typeOf) {
				break
			}
			for _, after := range d.at.Place(s.taken, m) {
				to := d.set(after)
				d.moves = append(d.moves, move{to: to, step: step, mine: d.groupOf(d.at.Between(s.taken, after))})
			}
		}
		s.moves = len(d.moves) - int(s.first)
		d.sets[set] = s
	}
	return d.moves[s.first:][:s.moves]
}

// toRest is how what the stage of a move sends gets to all devices that are left.
func (d *places) toRest(m *move) cluster.Line {
	if m.rest == nil {
		a := d.between(&m.mine, &d.sets[m.to].rest)
		m.rest = &a
	}
	return *m.rest
}

// streams is how what the stage of a move sends gets to the devices of each move behind it.
func (d *places) streams(move int32, behind []move) []cluster.Line {
	m := &d.moves[move]
	if m.next == nil {
		m.next = make([]cluster.Line, len(behind))
		for i := range behind {
			m.next[i] = d.between(&m.mine, &behind[i].mine)
		}
	}
	return m.next
}

func (d *places) groupOf(devices []int) group {
	key := make([]byte, 0, 3*len(devices))
	for _, dev := range devices {
		key = append(key, byte(dev), byte(dev>>8), byte(dev>>16))
	}
	g, known := d.groups[string(key)]
	if !known {
		g = d.newGroup(devices)
		d.groups[string(key)] = g
	}
	return g
}

func (d *places) newGroup(devices []int) group {
	g := group{devices: devices}
	for _, dev := range devices {
		if !slices.Contains(g.types, d.typeOf[dev]) {
			g.types = append(g.types, d.typeOf[dev])
		}
		if m := d.c.MemoryBytes(dev); m > 0 && (g.memory == 0 || m < g.memory) {
			g.memory = m
		}
	}
	size := 1
	for i := range len(d.c.Levels) + 1 {
		in := make([]int32, (len(d.typeOf)+size-1)/size)
		for _, dev := range devices {
			in[dev/size]++
		}
		g.in = append(g.in, in)
		if i < len(d.c.Levels) {
			size *= d.c.Levels[i].Size
		}
	}
	g.reduce = d.reduce(&g)
	return g
}

// reduce is the hierarchical and the flat all-reduce of a group. Groups of as many devices in
// each server take the same, and where there are two levels of links in whichever servers.
func (d *places) reduce(g *group) (lines [2]cluster.Line) {
	each := slices.Clone(g.in[min(1, len(g.in)-1)])
	if len(d.c.Levels) < 3 {
		slices.Sort(each)
	}
	var text []byte
	for _, n := range each {
		text = binary.AppendUvarint(text, uint64(n))
	}
	key := string(text)
	alike, known := d.reduces[key]
	if known && d.c.Nodes == nil {
		return alike
	}
	// Both are straight lines in the bytes where the links of one ring are alike, and never above
	// this line where they are not.
	const far = 1 << 40
	for i, reduce := range []func([]int, int64) float64{d.c.HierarchicalAllReduceS, d.c.RingAllReduceS} {
		zero := reduce(g.devices, 0)
		lines[i] = cluster.Line{FixedS: zero, PerByteS: (reduce(g.devices, far) - zero) / far}
	}
	d.reduces[key] = lines
	return lines
}

func (g *group) allReduceS(bytes float64) float64 {
	if len(g.devices) < 2 {
		return 0
	}
	return min(g.reduce[0].Of(bytes), g.reduce[1].Of(bytes))
}

// stream is the time per byte from all devices of one stage to all of another, with even slices on both sides
// (split/concat, §5.2). Every sender talks to every receiver at once; what leaves or enters a group of devices
// shares its links, one for each device of the stage in it, or one for the group where the level's uplinks are
// shared.
func (d *places) stream(from, to []int) cluster.Line {
	a, b := d.groupOf(from), d.groupOf(to)
	return d.between(&a, &b)
}

func (d *places) between(from, to *group) cluster.Line {
	var a cluster.Line
	for i, l := range d.c.Levels {
		a = a.Most(through(l, from.in[i], to.in[i], to.in[i+1], len(from.devices), len(to.devices)))
		a = a.Most(through(l, to.in[i], from.in[i], from.in[i+1], len(to.devices), len(from.devices)))
	}
	return a
}

// through is what goes through the links of one level:
// what stays in its group and leaves a member of that. mine is by member how many of one stage's
// devices are in it, others of the other's, outside by group.
func through(l cluster.Level, mine, others, outside []int32, ofMine, ofOthers int) (a cluster.Line) {
	for g, n := range mine {
		if n == 0 {
			continue
		}
		part := float64(n) / float64(ofMine) * float64(outside[g/l.Size]-others[g]) / float64(ofOthers)
		links := float64(n)
		if part <= 0 {
			continue
		}
		switch {
		case l.Shared:
			part, links = 1, 1
		case l.Uplinks:
			links = 1
		}
		a = a.Most(cluster.Line{FixedS: l.LatencyS, PerByteS: part / links / l.BandwidthBytesPerSecond})
	}
	return a
}
