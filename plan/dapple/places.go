package dapple

import (
	"encoding/binary"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
)

// places holds the sets of devices that the placements reach. It also holds the time per byte of transfers between
// stages on those sets. Nothing here depends on layers, so the searches of all micro-batch sizes share it. Sets are
// computed on first use.
type places struct {
	c      *cluster.Cluster
	at     *servers.Layout
	types  []string // device types of the cluster
	typeOf []int    // each device's index in types

	number map[string]int32 // index in `sets`, by the key of the taken devices
	sets   []set
	moves  []move
	groups map[string]group // by their devices

	reduces  map[string][2]cluster.Line // by the number of devices in each server
	shortest []cluster.Line             // see shortestReduces
}

// set is the devices that the stages of a prefix have taken.
type set struct {
	taken    servers.Taken
	used     int
	rest     group // all other devices
	extended bool
	first    int32 // index of the set's first move; `moves` is the number of its moves
	moves    int
}

// move adds one stage after a set.
type move struct {
	to   int32 // the set with the stage's devices
	step int   // index of the stage's number of devices in search.steps
	mine group
	rest *cluster.Line  // transfer to all remaining devices; nil until needed
	next []cluster.Line // transfer to the devices of each following move; nil until needed
}

// group holds the properties of a stage's devices.
type group struct {
	devices []int
	in      [][]int32 // number of devices in each group, by level; at the innermost level a group is a device
	types   []int     // device types among them
	memory  int64     // of the smallest device; 0 means no limit
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

// set returns the index of a set of taken devices, and adds the set if it is new.
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

// extend lists the stages that may follow a set, with each number of devices in `steps`, which is ascending. Some
// devices must remain.
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

// toRest returns the transfer from the stage of a move to all remaining devices.
func (d *places) toRest(m *move) cluster.Line {
	if m.rest == nil {
		a := d.between(&m.mine, &d.sets[m.to].rest)
		m.rest = &a
	}
	return *m.rest
}

// streams returns the transfers from the stage of a move to the devices of each following move.
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

// reduce returns the hierarchical and the flat all-reduce of a group. Unless nodes differ, both depend only on the list
// of the numbers of devices in each server. With at most two levels of links, the order of that list does not matter
// either.
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
	// If all links of a ring are equal, the time of an all-reduce is linear in the bytes. Otherwise the time never
	// exceeds the line that is computed here.
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

// stream returns the time per byte from all devices of one stage to all of another, with even slices on both sides
// (split/concat, §5.2). Every sender sends to every receiver at once. Data that leaves or enters a group of devices
// shares the group's links: one link for each of the stage's devices in it, or one for the group if the level's
// uplinks are shared.
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

// through returns the load on one level's links: data that leaves a member of a group but stays in the group. mine[g]
// is how many devices one stage has in member g, and others[g] how many the other stage has there. outside[k] is how
// many devices the other stage has in the whole group k.
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
