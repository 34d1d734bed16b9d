// Package progress says how far a piece of work is, and how long the rest will take.
//
// In: what is left to do, as pieces of kinds with a rough cost each, and when each begins and ends; the caller's
// clock. Out: the part that is done and the time left, once that can be said honestly. Refused: nothing.
//
// A piece takes what others of its kind took for their cost; one of a kind that nobody has seen yet what its group
// did; of a new group what everything did. So costs need be right only among pieces that have not been seen. A
// machine that others use is faster now and slower then: what is left is taken to go as the last part of the work went
// that took as long as is left. No time left is given in the first fifth of the work, nor while what is known of the
// rest leaves more than a factor of 1.5 open: of groups that nobody has seen, of a pace that changes, of a piece that
// takes longer than expected. Nor is one given of less than three seconds, which are over before it is of use.
//
// Whoever drives it says what is left again whenever that has changed, and may ask at any time from any goroutine.
package progress

import (
	"encoding/json"
	"math"
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
	Sure  bool    `json:",omitempty"` // it takes Cost seconds, because it is told to
	Times int     `json:",omitempty"` // in a Plan: so many alike; 0 is one
	// Within is between which seconds it takes, as far as is known before one of its kind was seen; nil: Cost says about
	// how many.
	Within *Within `json:",omitempty"`
	// Fills says that it lasts until so many seconds behind the Plan as Within says, whatever else is left.
	Fills bool `json:",omitempty"`
	// Far is the part of it that is done while it is under way, from 0 to 1; nil: nobody knows. It is asked while others
	// wait for a State.
	Far func() float64 `json:"-"`
}

// Within is a range of seconds.
type Within struct{ Least, Most float64 }

// Unknown is the Cost of a piece in a Plan whose duration nobody knows. No time left is shown while such a piece
// remains.
var Unknown = math.Inf(1)

// Work is work under way. Its zero value has nothing to do.
type Work struct {
	mu      sync.Mutex
	began   time.Time
	parts   []*part
	now     *Piece
	since   time.Time // now began
	past    []piece   // the first is the oldest
	done    int
	kinds   map[string]*pace
	groups  map[string]*pace
	overall pace

	recording *json.Encoder // nil: nobody records
}

// part is the pieces of one who says what is left.
type part struct {
	name string
	at   time.Time // it was said
	left []Piece   // not begun
}

// piece is one that has ended, or several neighbours of a kind.
type piece struct {
	kind, group string
	pace
}

// pace is what pieces cost and took.
type pace struct {
	pieces         int
	costs, seconds float64
}

func (p *pace) add(o pace) {
	p.pieces += o.pieces
	p.costs += o.costs
	p.seconds += o.seconds
}

// State is how far a Work is.
type State struct {
	What string // is being done; empty: nothing
	// Done is the part of all work that is behind, by time; 0 before anything can be said.
	Done float64
	Left time.Duration // until all is done
	// Least and Most are between what it lies, as far as is known: Left is off either by the same factor.
	Least, Most time.Duration
	// Honest says that Left is worth saying: the first fifth is over, and what is known leaves little open.
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
	w.parts[i].at, w.parts[i].left = at, slices.Clone(left)
	w.record(at, Event{Plan: name, Left: slices.Clone(left)})
}

func (w *Work) start(at time.Time) {
	if w.began.IsZero() {
		w.began, w.kinds, w.groups = at, map[string]*pace{}, map[string]*pace{}
		w.startRecording()
	}
}

// Begin begins a piece, behind the one under way if that has not ended. If a Plan has one of its What and Kind, that
// is it.
func (w *Work) Begin(at time.Time, p Piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start(at)
	w.end(at)
	w.record(at, Event{Begin: &p})
	w.now, w.since = &p, at
	for _, of := range w.parts {
		i := slices.IndexFunc(of.left, func(q Piece) bool { return q.What == p.What && q.Kind == p.Kind })
		switch {
		case i < 0:
			continue
		case of.left[i].Times > 1:
			of.left[i].Times--
		default:
			of.left = slices.Delete(of.left, i, i+1)
		}
		return
	}
}

// End ends the piece under way.
func (w *Work) End(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(at)
	w.record(at, Event{End: true})
}

func (w *Work) end(at time.Time) {
	if w.now == nil {
		return
	}
	one := piece{w.now.Kind, w.now.Group, pace{1, w.now.Cost, at.Sub(w.since).Seconds()}}
	for _, p := range []*pace{of(w.kinds, one.kind), of(w.groups, one.group), &w.overall} {
		p.add(one.pace)
	}
	if w.past = append(w.past, one); len(w.past) > mostPast {
		w.past = together(w.past)
	}
	w.now = nil
	w.done++
}

// mostPast bounds how many pieces are remembered one by one.
const mostPast = 512

// together takes neighbours of a kind two and two for one, and leaves at most half.
func together(past []piece) []piece {
	var out []piece
	for i := 0; i < len(past); i++ {
		p := past[i]
		if i+1 < len(past) && past[i+1].kind == p.kind {
			i++
			p.add(past[i].pace)
		}
		out = append(out, p)
	}
	return slices.Clone(out[max(0, len(out)-mostPast*3/4):])
}

func of(all map[string]*pace, name string) *pace {
	if all[name] == nil {
		all[name] = &pace{}
	}
	return all[name]
}

// seconds is how long a piece is expected to take, at the pace of the whole work.
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

const (
	// fromPart is the part of the work behind which a time left is said.
	fromPart = 0.2
	// honest is by what factor a time left that is said may be wrong, as far as is known.
	honest = 1.5
	// A piece's estimate may be wrong by one of these factors. It is likeOther where pieces of its kind have been seen,
	// likeGroup where only pieces of its group have, and likeNobody where neither has.
	likeOther, likeGroup, likeNobody = 1.3, 2.0, 4.0
	// leastSaid is the shortest time left that is said, in seconds.
	leastSaid = 3.0
)

// At is how far the work is at a time.
func (w *Work) At(now time.Time) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		return State{}
	}
	var left, told span // the paced, and what does not go with the pace
	var filled span
	open := false
	for _, of := range w.parts {
		for i := range of.left {
			p := &of.left[i]
			switch times := float64(max(1, p.Times)); {
			case math.IsInf(p.Cost, 1):
				open = true
			case p.Fills:
				gone := now.Sub(of.at).Seconds()
				filled = span{max(filled.least, p.Within.Least-gone), max(filled.most, p.Within.Most-gone)}
			case w.told(p):
				told.add(w.expected(p), times)
			default:
				left.add(w.expected(p), times)
			}
		}
	}
	if w.now == nil && left.most+told.most+filled.most == 0 {
		return State{} // what comes now, nobody has said
	}
	var s State
	known := w.done > 0
	gone := now.Sub(w.since).Seconds()
	slower := w.slower(gone, left.middle())
	if w.now != nil {
		s.What = w.now.What
		rest, measured := w.rest(now, gone, slower)
		left.add(rest, 1)
		strange := w.kinds[w.now.Kind] == nil && w.groups[w.now.Group] == nil
		known = measured || known && !(strange && w.now.Far != nil) // which will say itself how far it is
	}
	likely, may := math.Sqrt(slower), max(math.Sqrt(max(slower, 1/slower)), w.unsteady(left.middle()))
	left.least = max(filled.least, likely/may*left.least+told.least)
	left.most = max(filled.most, likely*may*left.most+told.most)
	seconds := left.middle()
	for at, seconds := range map[*time.Duration]float64{&s.Left: seconds, &s.Least: left.least, &s.Most: left.most} {
		*at = time.Duration(seconds * float64(time.Second))
	}
	if gone := now.Sub(w.began).Seconds(); known && !open && gone+seconds > 0 {
		s.Done = gone / (gone + seconds)
		s.Honest = s.Done >= fromPart && seconds >= leastSaid && left.most <= honest*honest*left.least
	}
	return s
}

// span is between which seconds something takes.
type span struct{ least, most float64 }

func (s *span) add(o span, times float64) {
	s.least += times * o.least
	s.most += times * o.most
}

// middle is off either end by the same factor.
func (s span) middle() float64 { return math.Sqrt(s.least * s.most) }

// around is a number of seconds that may be wrong by a factor.
func around(seconds, factor float64) span { return span{seconds / factor, seconds * factor} }

// told says whether nothing that was seen counts for a piece.
func (w *Work) told(p *Piece) bool { return p.Sure || p.Within != nil && w.kinds[p.Kind] == nil }

// expected is between which seconds a piece is expected to take.
func (w *Work) expected(p *Piece) span {
	switch {
	case p.Sure:
		return around(p.Cost, 1)
	case w.told(p):
		return span{p.Within.Least, p.Within.Most}
	case w.kinds[p.Kind] != nil && w.kinds[p.Kind].pieces > 1:
		return around(w.seconds(p), 1)
	case w.kinds[p.Kind] != nil, w.groups[p.Group] != nil && w.groups[p.Group].pieces > 1:
		return around(w.seconds(p), likeOther)
	case w.groups[p.Group] != nil:
		return around(w.seconds(p), likeGroup)
	}
	return around(w.seconds(p), likeNobody)
}

// rest is how long the piece under way takes beside what it took, and whether it says so itself.
func (w *Work) rest(now time.Time, gone, slower float64) (s span, measured bool) {
	if w.now.Far != nil {
		far := w.now.Far()
		w.record(now, Event{Far: far})
		if far >= leastFar {
			return around(gone*(1-min(far, 1))/far, 1), true
		}
	}
	s = w.expected(w.now)
	// A piece that takes longer than expected may be nearly done, or take as long again.
	s.least = max(s.least-gone, s.most/nearly)
	if s.most -= gone; s.most < s.least {
		s.most = max(gone/2, s.least)
	}
	return s, w.now.Sure
}

const (
	// nearly is which part of a piece is left where it takes longer than expected.
	nearly = 20
	// leastFar is how far a piece must be for what it says of itself to be a pace.
	leastFar = 0.02
)
