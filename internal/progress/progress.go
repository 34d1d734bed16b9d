// Package progress estimates how much of a work is done, and how long the rest will take.
//
// Input: the remaining work as pieces, each with a kind and a rough cost; and when each piece begins and ends, by the
// caller's clock. Output: the completed part, and the time left once it is reliable. Nothing is refused.
//
// The time of a piece is estimated from its cost and the times of other pieces of its kind. If no piece of the kind has
// run, the pieces of its group are used; if none of the group has run, all pieces. So the costs of different kinds need
// to be comparable only until a piece of each kind has run. Other programs make a machine faster and slower. The pace
// of the rest is assumed to be the geometric mean of two paces: the pace of all past work, and the pace of the most
// recent work, over a time that is as long as the rest.
//
// The time left is not given in the first fifth of the work, or while the estimate may be wrong by more than a factor
// of 1.5. It may be wrong because of new groups, a changing pace, or a piece that takes longer than expected. A time of
// less than three seconds is not given either, because it passes before it is of use.
//
// The caller calls Plan again whenever the remaining work changes. It may ask for the progress at any time from any
// goroutine.
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
	Kind  string  // pieces of a kind take the same time per Cost
	Group string  // name of a group of similar kinds
	Cost  float64 // approximate duration, in a unit common to all pieces
	Sure  bool    `json:",omitempty"` // the piece takes exactly Cost seconds
	Times int     `json:",omitempty"` // in a Plan: number of such pieces; 0 means 1
	// Within is the range of seconds that the piece takes. It is used until a piece of the same kind has run. nil means
	// that the duration is estimated from Cost.
	Within *Within `json:",omitempty"`
	// Fills says that the seconds of Within count from the call of Plan. The piece ends when these seconds have passed,
	// however long other pieces take.
	Fills bool `json:",omitempty"`
	// Far returns the completed part of the piece while it runs, from 0 to 1; nil means unknown. It is called with the
	// Work locked.
	Far func() float64 `json:"-"`
}

// Within is a range of seconds.
type Within struct{ Least, Most float64 }

// Unknown is the Cost of a piece of unknown duration in a Plan. The time left is not shown while such a piece remains.
var Unknown = math.Inf(1)

// Work is a work in progress. Its zero value has nothing to do.
type Work struct {
	mu      sync.Mutex
	began   time.Time
	parts   []*part
	now     *Piece
	since   time.Time // when the current piece began
	past    []piece   // finished pieces, oldest first
	done    int
	kinds   map[string]*pace
	groups  map[string]*pace
	overall pace

	recording *json.Encoder // nil means no recording
}

// part holds the remaining pieces of one part of the work, as given to Plan.
type part struct {
	name string
	at   time.Time // when Plan was called
	left []Piece   // pieces that have not begun
}

// piece is a finished piece, or several successive pieces of a kind.
type piece struct {
	kind, group string
	pace
}

// pace holds the costs and durations of pieces.
type pace struct {
	pieces         int
	costs, seconds float64
}

func (p *pace) add(o pace) {
	p.pieces += o.pieces
	p.costs += o.costs
	p.seconds += o.seconds
}

// State is the progress of a Work.
type State struct {
	What string // what is being done; empty if nothing
	// Done is the completed part of all work, by time; 0 while unknown.
	Done float64
	Left time.Duration // time until all is done
	// Least and Most are the bounds of Left: Left may be wrong by the same factor in both directions.
	Least, Most time.Duration
	// Honest says that Left is reliable: the first fifth is over, and the uncertainty is small. It is false if Left is
	// too short to be of use.
	Honest bool
}

// Plan sets the remaining pieces of one part of the work, without the current piece. They replace the pieces that were
// set for that part before.
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

// Begin begins a piece and ends the current one. If a Plan has a piece of the same What and Kind, that piece is begun.
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

// End ends the current piece.
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

// mostPast bounds how many pieces are kept separately.
const mostPast = 512

// together merges successive pieces of a kind in pairs. It drops the oldest of the result if more than three quarters
// of mostPast remain.
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

// seconds returns how long a piece is expected to take. It uses the pace of the piece's kind, or else of its group, or
// else of all pieces. It returns the Cost if the piece is Sure, or if no piece has run.
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
	// fromPart is the fraction of the work that must be done before a time left is given.
	fromPart = 0.2
	// honest is the largest factor by which a reported time left may be wrong.
	honest = 1.5
	// These are the factors by which a piece's estimate may be wrong. After two pieces of its kind the factor is 1.
	// likeOther applies after one piece of its kind or two pieces of its group. likeGroup applies after one piece of
	// its group, and likeNobody otherwise.
	likeOther, likeGroup, likeNobody = 1.3, 2.0, 4.0
	// leastSaid is the shortest time left that is given, in seconds.
	leastSaid = 3.0
)

// At returns the progress at a time.
func (w *Work) At(now time.Time) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		return State{}
	}
	var left, told span // `left` adds up pieces whose duration depends on the pace, `told` the others
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
		return State{} // the next piece is not known
	}
	var s State
	known := w.done > 0
	gone := now.Sub(w.since).Seconds()
	slower := w.slower(gone, left.middle())
	if w.now != nil {
		s.What = w.now.What
		rest, measured := w.rest(now, gone)
		left.add(rest, 1)
		strange := w.kinds[w.now.Kind] == nil && w.groups[w.now.Group] == nil
		known = measured || known && !(strange && w.now.Far != nil) // a piece of a new kind must report progress first
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

// span is a range of seconds.
type span struct{ least, most float64 }

func (s *span) add(o span, times float64) {
	s.least += times * o.least
	s.most += times * o.most
}

// middle returns the geometric mean, which differs from both ends by the same factor.
func (s span) middle() float64 { return math.Sqrt(s.least * s.most) }

// around returns the range of a duration that may be wrong by a factor.
func around(seconds, factor float64) span { return span{seconds / factor, seconds * factor} }

// told reports whether a piece itself says how long it takes: it is Sure, or it has Within and no piece of its kind has
// run.
func (w *Work) told(p *Piece) bool { return p.Sure || p.Within != nil && w.kinds[p.Kind] == nil }

// expected returns the range of seconds that a piece is expected to take.
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

// rest returns how long the current piece will still take. `measured` says that this does not depend on earlier pieces:
// the piece has reported progress of at least leastFar, or it is Sure.
func (w *Work) rest(now time.Time, gone float64) (s span, measured bool) {
	if w.now.Far != nil {
		far := w.now.Far()
		w.record(now, Event{Far: far})
		if far >= leastFar {
			return around(gone*(1-min(far, 1))/far, 1), true
		}
	}
	s = w.expected(w.now)
	// A piece that takes longer than expected may be nearly done, or may go on for half as long as it has run.
	s.least = max(s.least-gone, s.most/nearly)
	if s.most -= gone; s.most < s.least {
		s.most = max(gone/2, s.least)
	}
	return s, w.now.Sure
}

const (
	// nearly: the time left of a running piece is taken to be at least 1/nearly of its longest expected duration.
	nearly = 20
	// leastFar is the least progress of a piece from which a pace is computed.
	leastFar = 0.02
)
