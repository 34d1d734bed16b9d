// Package progress says how far a piece of work is, and how long the rest will take.
//
// In: what is left to do, as pieces of kinds with a rough cost each, and when each begins and ends; the caller's
// clock. Out: the part that is done and the time left, once that can be said honestly. Refused: nothing.
//
// A piece takes what others of its kind took for their cost; one of a kind that nobody has seen yet what its group
// did; of a new group what everything did. So costs need be right only among pieces that have not been seen. No time
// left is given in the first fifth of the work, nor while much of the rest is of groups that nobody has seen.
//
// Whoever drives it says what is left again whenever that has changed, and may ask at any time from any goroutine.
package progress

import (
	"slices"
	"sync"
	"time"
)

// Piece is a piece of work.
type Piece struct {
	What  string  // for people: "micro-batch 8"
	Kind  string  // pieces of a kind take as long, for their Cost
	Group string  // of kinds that are alike
	Cost  float64 // about how long it takes, in a unit that all pieces have
	Sure  bool    // it takes Cost seconds, because it is told to
}

// Work is work under way. Its zero value has nothing to do.
type Work struct {
	mu      sync.Mutex
	began   time.Time
	parts   []*part
	now     *Piece
	since   time.Time // now began
	done    int
	kinds   map[string]*pace
	groups  map[string]*pace
	overall pace
}

// part is the pieces of one who says what is left.
type part struct {
	name string
	left []Piece // not begun
}

// pace is what pieces cost and took.
type pace struct{ costs, seconds float64 }

// State is how far a Work is.
type State struct {
	What string // is being done; empty: nothing
	// Done is the part of all work that is behind, by time; 0 before anything can be said.
	Done float64
	Left time.Duration // until all is done
	// Honest says that Left is worth saying: the first fifth is over.
	Honest bool
}

// Plan says what is left to do of a part of the work, behind the piece under way. What was said of that part before
// no longer counts.
func (w *Work) Plan(at time.Time, name string, left ...Piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start(at)
	i := slices.IndexFunc(w.parts, func(p *part) bool { return p.name == name })
	if i < 0 {
		i = len(w.parts)
		w.parts = append(w.parts, &part{name: name})
	}
	w.parts[i].left = slices.Clone(left)
}

func (w *Work) start(at time.Time) {
	if w.began.IsZero() {
		w.began, w.kinds, w.groups = at, map[string]*pace{}, map[string]*pace{}
	}
}

// Begin begins a piece, behind the one under way if that has not ended. If a Plan has one of its What and Kind, that
// is it.
func (w *Work) Begin(at time.Time, p Piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start(at)
	w.end(at)
	w.now, w.since = &p, at
	for _, of := range w.parts {
		if i := slices.IndexFunc(of.left, func(q Piece) bool { return q.What == p.What && q.Kind == p.Kind }); i >= 0 {
			of.left = slices.Delete(of.left, i, i+1)
			return
		}
	}
}

// End ends the piece under way.
func (w *Work) End(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(at)
}

func (w *Work) end(at time.Time) {
	if w.now == nil {
		return
	}
	took := at.Sub(w.since).Seconds()
	for _, p := range []*pace{of(w.kinds, w.now.Kind), of(w.groups, w.now.Group), &w.overall} {
		p.costs += w.now.Cost
		p.seconds += took
	}
	w.now = nil
	w.done++
}

func of(all map[string]*pace, name string) *pace {
	if all[name] == nil {
		all[name] = &pace{}
	}
	return all[name]
}

// seconds is how long a piece is expected to take.
func (w *Work) seconds(p *Piece) float64 {
	if p.Sure {
		return p.Cost
	}
	for _, known := range []*pace{w.kinds[p.Kind], w.groups[p.Group], &w.overall} {
		if known != nil && known.costs > 0 {
			return p.Cost * known.seconds / known.costs
		}
	}
	return p.Cost
}

// fromPart is the part of the work behind which a time left is said, and the most of that which may be of groups that
// nobody has seen.
const fromPart = 0.2

// At is how far the work is at a time.
func (w *Work) At(now time.Time) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		return State{}
	}
	var s State
	left, unseen := 0.0, 0.0
	if w.now != nil {
		s.What = w.now.What
		// A piece that takes longer than expected is taken to be nearly done, but never quite.
		whole, gone := w.seconds(w.now), now.Sub(w.since).Seconds()
		left += max(whole-gone, whole/nearly)
		if w.groups[w.now.Group] == nil && !w.now.Sure {
			unseen += left
		}
	}
	for _, of := range w.parts {
		for i := range of.left {
			s := w.seconds(&of.left[i])
			if left += s; w.groups[of.left[i].Group] == nil && !of.left[i].Sure {
				unseen += s
			}
		}
	}
	if w.now == nil && left == 0 {
		return State{} // what comes now, nobody has said
	}
	gone := now.Sub(w.began).Seconds()
	s.Left = time.Duration(left * float64(time.Second))
	if (w.done > 0 || w.now != nil && w.now.Sure) && gone+left > 0 {
		s.Done = gone / (gone + left)
		s.Honest = s.Done >= fromPart && unseen <= fromPart*left
	}
	return s
}

// nearly is which part of a piece is left where it takes longer than expected.
const nearly = 20
