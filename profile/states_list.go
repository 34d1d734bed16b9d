package profile

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// lister lists the states of one graph, segment by segment. If all that an absorbed layer reads is before a cut, the
// layer itself is before the cut too (see CompressedStates).
type lister struct {
	*graph
	absorbed []bool
	limit    int
	out      *States
	listed   int // total layers in all antichains

	open []int // layers before the segment that are read by a layer in it or after it

	// For the current segment:
	seg    segment
	past   [][]uint64 // by layer: the layers of the segment on which it depends
	extras [][]int    // by layer: what it adds to the augmented antichain
	marked []int      // by layer: the last visit that listed it
	visit  int
}

func (g *graph) states(absorbed []bool, limit int) (*States, error) {
	l := &lister{graph: g, absorbed: absorbed, limit: limit, out: &States{segments: g.segments(absorbed)},
		marked: make([]int, len(g.pred))}
	start := []int(nil)
	for i, seg := range l.out.segments {
		if err := l.enter(seg); err != nil {
			return nil, err
		}
		found, err := l.search(start)
		if err != nil {
			return nil, err
		}
		if err := l.emit(int32(i), found); err != nil {
			return nil, err
		}
		last := l.out.List[len(l.out.List)-1]
		if most := found[len(found)-1]; count(most) != seg.last-seg.first+1 {
			for m := seg.first; m <= seg.last; m++ {
				if at := m - seg.first; most[at/64]>>(at%64)&1 == 0 {
					return nil, fmt.Errorf("profile: layer %d (%s) of %s is connected to no layer that layer 0 (%s) "+
						"is connected to; a pipeline needs a graph in one piece",
						m, g.profile.Layers[m].Name, g.profile.Model, g.profile.Layers[0].Name)
				}
			}
		}
		start = last.Antichain
		l.leave()
	}
	return l.out, nil
}

// enter computes which layers of a segment depend on which.
func (l *lister) enter(seg segment) error {
	size := seg.last - seg.first + 1
	if size > maxSegment {
		return &TooManyStatesError{l.profile.Model, maxSegment, "layers between two that everything passes through"}
	}
	l.seg = seg
	words := seg.words()
	flat := make([]uint64, size*words)
	l.past, l.extras = make([][]uint64, size), make([][]int, size)
	for i := range size {
		past := flat[i*words:][:words]
		for _, from := range l.pred[seg.first+i] {
			if at := from - seg.first; at >= 0 {
				past[at/64] |= 1 << (at % 64)
				for w, word := range l.past[at] {
					past[w] |= word
				}
			}
		}
		l.past[i] = past
		for _, p := range l.open {
			if l.readOutside(p, i) {
				l.extras[i] = append(l.extras[i], p)
			}
		}
		for w, word := range past {
			for ; word != 0; word &= word - 1 {
				if p := seg.first + 64*w + bits.TrailingZeros64(word); l.readOutside(p, i) {
					l.extras[i] = append(l.extras[i], p)
				}
			}
		}
		if l.listed += len(l.extras[i]); l.listed > maxAntichains {
			return &TooManyStatesError{l.profile.Model, maxAntichains, "layers in the antichains of all its states"}
		}
	}
	return nil
}

// readOutside reports whether layer p, an ancestor of the segment's i-th layer, has a reader other than the i-th
// layer and its ancestors.
func (l *lister) readOutside(p, i int) bool {
	if l.lastReader(p) > l.seg.last {
		return true
	}
	for _, reader := range l.succ[p] {
		at := reader - l.seg.first
		if at < 0 || at == i {
			continue
		}
		if l.past[i][at/64]>>(at%64)&1 == 0 {
			return true
		}
	}
	return false
}

// leave keeps the layers of the segment that later segments read.
func (l *lister) leave() {
	for m := l.seg.first; m <= l.seg.last; m++ {
		l.open = append(l.open, m)
	}
	l.open = slices.DeleteFunc(l.open, func(m int) bool {
		return l.lastReader(m) <= l.seg.last
	})
}

// lastReader returns the last layer that reads layer m, or -1. Readers are listed in ascending order.
func (l *lister) lastReader(m int) int {
	if readers := l.succ[m]; len(readers) > 0 {
		return readers[len(readers)-1]
	}
	return -1
}

// search finds the closures inside the segment, smallest first. It starts from the antichain before the segment, or
// from layer 0 if there is none.
func (l *lister) search(start []int) ([][]uint64, error) {
	words := l.seg.words()
	index := map[string]bool{}
	var found [][]uint64
	key := make([]byte, 8*words)
	add := func(closure, from []uint64) error {
		l.absorb(closure, from)
		for w, word := range closure {
			for b := range 8 {
				key[8*w+b] = byte(word >> (8 * b))
			}
		}
		if index[string(key)] {
			return nil
		}
		if len(l.out.List)+len(found) >= l.limit {
			return &TooManyStatesError{l.profile.Model, l.limit, "antichain states"}
		}
		if (len(found)+1)*words+len(l.out.bits) > maxClosureWords {
			return &TooManyStatesError{l.profile.Model, 64 * maxClosureWords,
				"layers in the closures of all its states"}
		}
		index[string(key)] = true
		found = append(found, slices.Clone(closure))
		return nil
	}
	next := make([]uint64, words)
	grow := func(closure []uint64, antichain []int) error {
		for _, u := range antichain {
			for _, v := range l.succ[u] {
				at := v - l.seg.first
				if at < 0 || v > l.seg.last || closure[at/64]>>(at%64)&1 != 0 {
					continue
				}
				for w := range next {
					next[w] = closure[w] | l.past[at][w]
				}
				next[at/64] |= 1 << (at % 64)
				if err := add(next, closure); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var err error
	if start == nil {
		next[0] = 1
		err = add(next, make([]uint64, words))
	} else {
		err = grow(make([]uint64, words), start)
	}
	for i := 0; i < len(found) && err == nil; i++ {
		err = grow(found[i], l.antichain(found[i]))
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b []uint64) int {
		return cmp.Or(cmp.Compare(count(a), count(b)), slices.Compare(a, b))
	})
	return found, nil
}

// absorb adds to closure each absorbed layer whose inputs are all inside. The argument `before` is the closure before
// layers were added. Nothing was missing from it in this sense, so an absorbed layer to add reads a layer that was just
// added. It is the only reader of that layer, because an absorbed layer is the only reader of its inputs. Some of its
// inputs are in its own segment, because the method segments does not cut before an absorbed layer.
func (l *lister) absorb(closure, before []uint64) {
	for w := range closure {
		for added := closure[w] &^ before[w]; added != 0; added &= added - 1 {
			for m := l.seg.first + 64*w + bits.TrailingZeros64(added); len(l.succ[m]) == 1; {
				z := l.succ[m][0]
				at := z - l.seg.first
				if !l.absorbed[z] || closure[at/64]>>(at%64)&1 != 0 || !l.reads(closure, z) {
					break
				}
				closure[at/64] |= 1 << (at % 64)
				m = z
			}
		}
	}
}

// reads reports whether everything that layer z reads is before the segment or in the closure.
func (l *lister) reads(closure []uint64, z int) bool {
	for _, from := range l.pred[z] {
		if at := from - l.seg.first; at >= 0 && closure[at/64]>>(at%64)&1 == 0 {
			return false
		}
	}
	return true
}

// antichain returns the augmented antichain of a closure, ascending.
func (l *lister) antichain(closure []uint64) []int {
	var out []int
	l.visit++
	for w, word := range closure {
		for ; word != 0; word &= word - 1 {
			at := 64*w + bits.TrailingZeros64(word)
			if l.isLast(closure, l.seg.first+at) {
				out = append(out, l.seg.first+at)
			}
		}
	}
	for _, a := range out[:len(out):len(out)] {
		for _, p := range l.extras[a-l.seg.first] {
			if l.marked[p] != l.visit {
				l.marked[p] = l.visit
				out = append(out, p)
			}
		}
	}
	slices.Sort(out)
	return out
}

// isLast reports whether no layer of the closure reads layer m.
func (l *lister) isLast(closure []uint64, m int) bool {
	for _, reader := range l.succ[m] {
		if at := reader - l.seg.first; reader <= l.seg.last && closure[at/64]>>(at%64)&1 != 0 {
			return false
		}
	}
	return true
}

// emit adds the states of a segment with their cumulative values.
func (l *lister) emit(of int32, found [][]uint64) error {
	var base State
	if n := len(l.out.List); n > 0 {
		base = l.out.List[n-1]
	}
	for _, closure := range found {
		s := State{ComputeS: base.ComputeS, ParameterBytes: base.ParameterBytes, ActivationBytes: base.ActivationBytes}
		for w, word := range closure {
			for ; word != 0; word &= word - 1 {
				m := l.seg.first + 64*w + bits.TrailingZeros64(word)
				s.ComputeS += l.costs[m].ForwardS + l.costs[m].BackwardS
				s.ParameterBytes += l.profile.Layers[m].ParameterBytes
				s.ActivationBytes += l.costs[m].SavedBytes
			}
		}
		s.Antichain = l.antichain(closure)
		for _, m := range s.Antichain {
			s.OutputBytes += l.costs[m].OutputBytes
		}
		if l.listed += len(s.Antichain); l.listed > maxAntichains {
			return &TooManyStatesError{l.profile.Model, maxAntichains, "layers in the antichains of all its states"}
		}
		l.out.offset = append(l.out.offset, len(l.out.bits))
		l.out.bits = append(l.out.bits, closure...)
		l.out.of = append(l.out.of, of)
		l.out.List = append(l.out.List, s)
	}
	return nil
}

func count(set []uint64) int {
	n := 0
	for _, word := range set {
		n += bits.OnesCount64(word)
	}
	return n
}
