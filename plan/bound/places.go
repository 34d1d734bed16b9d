package bound

import (
	"fmt"
	"slices"
)

// place is what the stages of a path have taken of the devices so far.
type place struct {
	used int
	// at is how many devices are taken of the group that the last stage is in; 0: it is in several groups.
	at int
	// home is how many are taken of the group that the path was in last, where the last stage is in several; 0: of none.
	home int
	// last is the devices of the last stage; 0 where nobody keeps them apart.
	last int
	next []move
}

// move is one more stage.
type move struct {
	to, devices int
	set         int // in which groups its devices are, of places.sets
	way         way
	away        int  // of a spread stage behind a local one, devices that are not in its group
	elsewhere   bool // in another group than the path was in last
	others      int  // of a local stage's group, devices that are not the spread stage's before it, at least
}

// way is how a micro-batch comes to a stage from the one before; 0: in its group, or nobody knows better.
type way int

const (
	leaves  way = iota + 1 // its group
	spreads                // from one group to several
	gathers                // from several groups to one
)

// places are all that stages can take of groups of devices: place 0 is nothing. Sets are how many devices a stage has
// in each group, the most first. Groups are alike, so that only how many devices of each are taken counts.
type places struct {
	all     []place
	sets    [][]int
	counted bool // set r is r devices of one group, and devices + r of several: nobody knows of how many of each
}

// mostPlaces bounds the places that are told apart.
const mostPlaces = 2000

// finder finds places, each once.
type finder struct {
	*places
	lasts       bool           // the devices of the last stage are told apart
	known, sets map[string]int // places and sets of devices
	taken       [][]int        // of each group by place, the most first
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

// exactPlaces is nil where there are too many. Where lasts is set the devices of the last stage are told apart too.
func exactPlaces(groups, size int, lasts bool) *places {
	f := &finder{places: &places{}, lasts: lasts, known: map[string]int{}, sets: map[string]int{}}
	f.place(make([]int, groups), 0, 0, 0)
	for i := 0; i < len(f.all); i++ {
		if len(f.all) > mostPlaces {
			return nil
		}
		from, used, home := f.all[i], f.taken[i], -1
		if in := max(from.at, from.home); in > 0 {
			home = slices.Index(used, in) // the group that the path was in last
		}
		seen := map[move]bool{}
		everySet(used, home, size, func(v []int) {
			if m := f.move(from, used, home, size, v); !seen[m] {
				seen[m] = true
				f.all[i].next = append(f.all[i].next, m)
			}
		})
	}
	return f.places
}

// move is a stage that takes some devices of each group.
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
		if from.at > 0 {
			m.way, m.away = spreads, r-v[home]
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

// everySet lists all ways to take devices of groups of which some are taken. Groups beside one another of which as many
// are taken are alike, but home: of ways that differ by these alone it lists one.
func everySet(used []int, home, size int, yield func(v []int)) {
	v := make([]int, len(used))
	var walk func(g, sum int)
	walk = func(g, sum int) {
		if g == len(used) {
			if sum > 0 {
				yield(v)
			}
			return
		}
		most := size - used[g]
		if g > 0 && used[g] == used[g-1] && g != home && g-1 != home {
			most = v[g-1]
		}
		for v[g] = 0; v[g] <= most; v[g]++ {
			walk(g+1, sum+v[g])
		}
		v[g] = 0
	}
	walk(0, 0)
}

// countedPlaces count the devices used and those of the last group that were taken in a row: groups that a path comes
// back to are counted as new ones, which only allows more paths.
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
