package bound

import (
	"fmt"
	"slices"
)

// place is the set of devices that the stages of a path have taken so far.
type place struct {
	used int
	// at is the number of devices taken in the last stage's group; 0 if that stage is in several groups.
	at int
	// home is set only if the last stage is in several groups. If the path was in a single group before, home is the
	// number of devices taken in that group; otherwise it is 0.
	home int
	// last is the number of devices of the last stage; 0 if it is not recorded.
	last int
	next []move
}

// move adds one stage to a path.
type move struct {
	to, devices int
	set         int // index in places.sets, which has the stage's numbers of devices by group
	way         way
	away        int  // for a spread stage: its devices outside the group of the local stage before it
	elsewhere   bool // for a local stage after a spread one: it is in another group than the last local stage
	others      int  // for a local stage after a spread one: at least this many devices of its group were free before it
	// fresh, apart and part are for a spread stage after a spread one. A group is new if no earlier stage has devices
	// in it. fresh is the largest number of devices that the stage has in one new group. apart says that all devices of
	// the stage are in new groups. part is for split micro-batches: the largest part of each micro-batch that enters
	// one group.
	fresh int
	apart bool
	part  float64
}

// way says how a micro-batch gets from one stage to the next; 0 means within one group, or unknown.
type way int

const (
	leaves  way = iota + 1 // from one group to another
	spreads                // from one group to several
	moves                  // from several groups to several
	gathers                // from several groups to one
)

// places lists all sets of devices that stages can take from groups. Groups are identical, so only the number of
// devices taken in each counts. Place 0 is empty. Each entry of `sets` says how one stage takes devices: it has the
// stage's numbers of devices in its groups, in descending order.
type places struct {
	all     []place
	sets    [][]int
	counted bool // if true: sets[r] is r devices of one group, and sets[devices+r] is r devices of several groups
}

// mostPlaces limits the number of distinct places.
const mostPlaces = 2000

// finder lists places without duplicates.
type finder struct {
	*places
	lasts       bool           // distinguish places by the devices of the last stage
	known, sets map[string]int // index by place and by set of devices
	taken       [][]int        // devices taken in each group, by place, in descending order
}

func (f *finder) place(used []int, at, home, last int) int {
	used = descending(used)
	if !f.lasts {
		last = 0
	}
	key := fmt.Sprint(used, at, home, last)
	i, ok := f.known[key]
	if !ok {
		i = len(f.all)
		f.known[key] = i
		sum := 0
		for _, n := range used {
			sum += n
		}
		f.all, f.taken = append(f.all, place{used: sum, at: at, home: home, last: last}), append(f.taken, used)
	}
	return i
}

func (f *finder) set(v []int) int {
	v = descending(slices.DeleteFunc(slices.Clone(v), func(n int) bool { return n == 0 }))
	key := fmt.Sprint(v)
	i, ok := f.sets[key]
	if !ok {
		i = len(f.places.sets)
		f.sets[key] = i
		f.places.sets = append(f.places.sets, v)
	}
	return i
}

func descending(n []int) []int {
	n = slices.Clone(n)
	slices.SortFunc(n, func(a, b int) int { return b - a })
	return n
}

// exactPlaces lists the places, or returns nil if there are too many. With `lasts` it also distinguishes places by the
// size of the last stage.
func exactPlaces(groups, size int, lasts bool) *places {
	f := &finder{places: &places{}, lasts: lasts, known: map[string]int{}, sets: map[string]int{}}
	f.place(make([]int, groups), 0, 0, 0)
	for i := 0; i < len(f.all); i++ {
		from, used, home := f.all[i], f.taken[i], -1
		if in := max(from.at, from.home); in > 0 {
			home = slices.Index(used, in) // the group that the path was in last
		}
		seen := map[move]bool{}
		everySet(used, home, size, func(v []int) bool {
			if m := f.move(from, used, home, size, v); !seen[m] {
				seen[m] = true
				f.all[i].next = append(f.all[i].next, m)
			}
			return len(f.all) <= mostPlaces && len(f.places.sets) <= mostPlaces
		})
		if len(f.all) > mostPlaces || len(f.places.sets) > mostPlaces {
			return nil
		}
	}
	return f.places
}

// move returns the stage that takes v[g] devices of each group g.
func (f *finder) move(from place, used []int, home, size int, v []int) move {
	next, r, parts, last, was := slices.Clone(used), 0, 0, 0, 0
	for g, n := range v {
		if next[g] += n; n > 0 {
			r, parts, last = r+n, parts+1, g
		}
	}
	if home >= 0 {
		was = next[home]
	}
	m := move{devices: r, set: f.set(v)}
	switch {
	case parts > 1:
		m.to = f.place(next, 0, was, r)
		switch {
		case from.at > 0:
			m.way, m.away = spreads, r-v[home]
		case from.used > 0:
			m.way, m.apart = moves, true
			for g, n := range v {
				if n == 0 {
					continue
				}
				before := 1.0 // the largest part of the previous stage that can be in this group
				if from.last > 0 {
					before = min(1, float64(used[g])/float64(from.last))
				}
				if used[g] == 0 {
					m.fresh, before = max(m.fresh, n), 0
				} else {
					m.apart = false
				}
				m.part = max(m.part, float64(n)/float64(r)-before)
			}
		}
		return m
	case from.at > 0 && last != home:
		m.way = leaves
	case from.at == 0 && from.used > 0:
		m.way, m.others, m.elsewhere = gathers, size-used[last], home >= 0 && last != home
	}
	m.to = f.place(next, next[last], 0, r)
	return m
}

// everySet lists the ways to take devices from groups in which `used` devices are already taken. Neighbouring groups
// with the same number taken are interchangeable, except the group `home`. If ways differ only by such groups, everySet
// lists one of them. It stops once yield returns false.
func everySet(used []int, home, size int, yield func(v []int) bool) {
	v := make([]int, len(used))
	var walk func(g, sum int) bool
	walk = func(g, sum int) bool {
		if g == len(used) {
			return sum == 0 || yield(v)
		}
		most := size - used[g]
		if g > 0 && used[g] == used[g-1] && g != home && g-1 != home {
			most = v[g-1]
		}
		for v[g] = 0; v[g] <= most; v[g]++ {
			if !walk(g+1, sum+v[g]) {
				return false
			}
		}
		v[g] = 0
		return true
	}
	walk(0, 0)
}

// countedPlaces returns places that count only two numbers. One is the number of all devices used. The other is the
// number of devices used in the last group since the path came into it. If a path returns to a group, the group counts
// as a new one, which only allows more paths.
func countedPlaces(devices, size int, lasts bool) *places {
	p := &places{counted: true, sets: make([][]int, 2*devices+1)}
	known := map[[3]int]int{}
	at := func(used, at, last int) int {
		if !lasts {
			last = 0
		}
		i, ok := known[[3]int{used, at, last}]
		if !ok {
			i = len(p.all)
			known[[3]int{used, at, last}] = i
			p.all = append(p.all, place{used: used, at: at, last: last})
		}
		return i
	}
	at(0, 0, 0)
	for i := 0; i < len(p.all); i++ {
		from := p.all[i]
		var next []move
		for r := 1; from.used+r <= devices; r++ {
			used := from.used + r
			if r > 1 {
				m := move{to: at(used, 0, r), devices: r, set: devices + r}
				if from.at > 0 {
					m.way, m.away = spreads, r-min(size-from.at, r-1)
				}
				next = append(next, m)
			}
			if r > size {
				continue
			}
			m := move{to: at(used, r, r), devices: r, set: r}
			switch {
			case from.at > 0:
				m.way = leaves
				if from.at+r <= size {
					next = append(next, move{to: at(used, from.at+r, r), devices: r, set: r})
				}
			case from.used > 0:
				m.way, m.others = gathers, r
			}
			next = append(next, m)
		}
		p.all[i].next = next
	}
	return p
}
