package timing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/model"
)

// leastRounds and mostRounds bound how often each size is visited. A round visits all sizes. A machine can be slow for
// seconds at a time. A size timed in one go could then seem slower than its neighbours, and planners would avoid it. So
// its visits are spread over more seconds, which is also more like training.
const (
	leastRounds = 4
	mostRounds  = 15
	enoughS     = 15.0 // when visits took this many seconds, no round beyond leastRounds begins, unless Passes is set
	leastPasses = 6    // passes of updates

	// For a quick sitting:
	firstsPart  = 0.74 // part of QuickS for the first visits; sizes whose first visits do not fit are left out
	leastSizes  = 3    // number of sizes that are measured in any case
	quickPasses = 2    // passes of updates
)

// QuickS is how long a quick sitting takes, in seconds. Visits after the first ones are planned to end by then.
// Tests that do not check measurements set it lower.
var QuickS = 9.5

// sitting is the state of a sitting while Extend measures.
type sitting struct {
	*Record
	Options
	ctx    context.Context
	crew   Crew
	r      Request
	sizes  []int           // sizes that are visited in each round, ascending
	passes int             // passes of each size, over all rounds; 0 means that the crew chooses
	rounds int             // largest number of rounds
	later  map[int]float64 // by size: seconds of its last visit in any round but the first
	priorS float64         // first estimate of a pass over one sample, in seconds
	kept   time.Time
}

// Extend measures what the Options ask for and the Record lacks. If it fails, or if ctx ends, the measurements made so
// far stay in the Record.
func (r *Record) Extend(ctx context.Context, m *model.Model, t Timer, o Options) (err error) {
	if o, err = o.filled(); err != nil {
		return err
	}
	r.Engine, r.Device = t.Engine(), t.Device()
	s := &sitting{Record: r, Options: o, ctx: ctx, later: map[int]float64{}, rounds: mostRounds,
		r: Request{Model: m, MicroBatch: o.MicroBatches[0], AtLeastS: o.AtLeastS, Concurrency: r.Concurrency,
			Threads: r.Threads, Again: o.Passes != 1}}
	if o.Passes > 0 {
		s.rounds, s.passes = min(mostRounds, o.Passes), o.Passes
	}
	s.Progress.Plan(s.now(), visits, progress.Piece{What: visits, Cost: progress.Unknown})
	defer func() { s.Progress.Plan(s.now(), visits) }()
	if s.updatesMissing() {
		if err := s.measureUpdates(t); err != nil {
			return err
		}
	}
	if len(s.turns(s.chosen())) == 0 {
		return s.keep(true)
	}
	s.sizes = s.turns(o.MicroBatches) // a quick sitting decides later which of them to leave out
	if s.crew, err = t.Crew(ctx, s.r); err != nil {
		return fmt.Errorf("profile: %s: %w", r.Model, err)
	}
	defer s.crew.Close()
	r.Sittings = append(r.Sittings, Sitting{Began: s.now()})
	err = s.visitAll()
	if last := &r.Sittings[len(r.Sittings)-1]; len(last.Rounds) == 0 || len(last.Rounds[0]) == 0 {
		r.Sittings = r.Sittings[:len(r.Sittings)-1]
	} else if n := len(last.Rounds) - 1; len(last.Rounds[n]) == 0 {
		last.Rounds = last.Rounds[:n]
	}
	return errors.Join(err, s.keep(true))
}

// Lacks reports whether Extend would measure anything.
func (r *Record) Lacks(o Options) bool {
	o, err := o.filled()
	s := &sitting{Record: r, Options: o}
	return err == nil && (s.updatesMissing() || len(s.turns(s.chosen())) > 0)
}

// Chosen returns those sizes of the Options that Extend measures or has measured.
func (r *Record) Chosen(o Options) []int {
	o, err := o.filled()
	if err != nil {
		return nil
	}
	return (&sitting{Record: r, Options: o}).chosen()
}

func (s *sitting) updatesMissing() bool {
	u := s.updates(s.Optimizer)
	return u == nil || s.Passes > 0 || !s.Quick && u.Passes < leastPasses
}

// turns returns those of the given sizes that a sitting's rounds visit, because they need more visits. If none of them
// was visited before, turns adds a size of the Record.
func (s *sitting) turns(of []int) []int {
	var sizes []int
	known := false
	for _, size := range of {
		n := len(s.visits(size))
		if n == 0 || !s.Quick && !s.thorough(size) {
			sizes, known = append(sizes, size), known || n > 0
		}
	}
	if have, _ := s.Record.Sizes(); len(sizes) > 0 && !known && len(have) > 0 {
		middle := float64(sizes[len(sizes)/2])
		nearest := slices.MinFunc(have, func(a, b int) int {
			far := func(n int) float64 { return math.Abs(math.Log(float64(n) / middle)) }
			return cmp.Compare(far(a), far(b))
		})
		sizes = append(sizes, nearest)
		slices.Sort(sizes)
	}
	return sizes
}

// thorough reports whether a size needs no more visits: it has had mostRounds visits, or it has had leastRounds and the
// visits to all requested sizes took more than enoughS together. If Passes is set, a size always needs more.
func (s *sitting) thorough(size int) bool {
	if s.Passes > 0 {
		return false
	}
	n := len(s.visits(size))
	return n >= mostRounds || n >= leastRounds && s.visitedS() > enoughS
}

// visitedS returns the total time of all visits to the requested sizes, in seconds.
func (s *sitting) visitedS() (tookS float64) {
	for _, size := range s.MicroBatches {
		for _, v := range s.visits(size) {
			tookS += v.TookS
		}
	}
	return tookS
}

// chosen returns the requested sizes that this sitting measures. In a quick sitting they are the smaller ones: as many
// as can be visited in firstsPart of QuickS, and at least leastSizes. Sizes measured before are included, however long
// their visits took.
func (s *sitting) chosen() []int {
	if !s.Quick || s.Every {
		return s.MicroBatches
	}
	sum := 0.0
	for i, size := range s.MicroBatches {
		sum += s.firstS(size)
		if i >= leastSizes && sum > firstsPart*QuickS {
			return slices.DeleteFunc(slices.Clone(s.MicroBatches), func(size int) bool {
				return size >= s.MicroBatches[i] && len(s.visits(size)) == 0
			})
		}
	}
	return s.MicroBatches
}

// firstS returns how long the first visit to a size took or, if there was none, is expected to take.
func (s *sitting) firstS(size int) float64 {
	near, tookS := 0, 0.0
	s.each(func(_, _ int, v *Visit) {
		if v.MicroBatch <= size && v.MicroBatch > near {
			near, tookS = v.MicroBatch, v.TookS
		}
	})
	if near == 0 {
		return max(3*s.AtLeastS, firstPasses*s.priorS*float64(size))
	}
	return tookS * float64(size) / float64(near)
}

// firstPasses is how many passes a first visit makes if passes are long. A later visit takes laterPart of its time.
const (
	firstPasses = 5
	laterPart   = 0.6
)

// laterS returns the expected time of another visit to a size, in seconds.
func (s *sitting) laterS(size int) float64 {
	if took, ok := s.later[size]; ok {
		return took
	}
	return laterPart * s.firstS(size)
}

func (s *sitting) measureUpdates(t Timer) error {
	passes := leastPasses
	switch {
	case s.Passes > 0:
		passes = max(s.Passes, leastPasses)
	case s.Quick:
		passes = quickPasses
	}
	r := s.r
	r.Warmup, r.Passes = 1, passes
	piece := progress.Piece{What: "updates", Kind: "updates", Group: "updates", Cost: 1}
	began := s.now()
	s.Progress.Begin(began, piece)
	all, kind, states, err := t.Updates(s.ctx, r)
	if err != nil {
		return fmt.Errorf("profile: %s: updates: %w", s.Model, err)
	}
	s.Progress.End(s.now())
	// Each of these passes makes a forward, a backward and an update three times: once plainly, and once for each of
	// the two pipelines of elastic averaging.
	s.priorS = s.now().Sub(began).Seconds() / float64(3*(r.Warmup+passes)) / float64(r.MicroBatch)
	s.Updates = slices.DeleteFunc(s.Updates, func(u Updates) bool { return u.Settings == s.Optimizer })
	s.Updates = append(s.Updates, Updates{Settings: s.Optimizer, Kind: kind, States: states, Passes: passes, Layers: all})
	return s.keep(true)
}

// visitAll visits the sizes in rounds. The first round starts with the smallest size, because each size's time predicts
// the time of the next size. The other rounds start with the largest, because the memory that it needs determines how
// much freed memory an allocator keeps.
func (s *sitting) visitAll() error {
	began := s.now()
	for round := range s.rounds {
		lacks := func(size int) bool { return !s.thorough(size) }
		if s.Passes == 0 && !s.Quick && round > 0 && !slices.ContainsFunc(s.sizes, lacks) {
			break
		}
		rounds := &s.Sittings[len(s.Sittings)-1].Rounds
		*rounds = append(*rounds, Round{})
		some := false
		for i := range s.sizes {
			size := s.at(round, i)
			if round == 0 && i > 0 && !slices.Contains(s.chosen(), size) && len(s.visits(size)) == 0 {
				continue // earlier visits have shown that this size takes too long
			}
			gone := s.now().Sub(began).Seconds()
			if s.Quick && round > 0 && gone+s.laterS(size) > QuickS {
				continue
			}
			some = true
			if err := s.visit(size, round, i, QuickS-gone); err != nil {
				return err
			}
		}
		if !some {
			break
		}
		if round == 0 {
			s.sizes = slices.DeleteFunc(s.sizes, func(size int) bool { return len(s.visits(size)) == 0 })
		}
	}
	return nil
}

// visit visits a size as the i-th of a round. The argument leftS is the time that a quick sitting has left, in seconds.
func (s *sitting) visit(size, round, i int, leftS float64) error {
	s.r.MicroBatch, s.r.Passes = size, 1
	if s.passes > 0 {
		s.r.Passes = (s.passes + round) / s.rounds
	}
	s.Progress.Plan(s.now(), visits, s.left(round, i, leftS)...)
	s.Progress.Begin(s.now(), s.piece(size, round))
	began := s.now()
	timings, err := s.crew.Layers(s.ctx, s.r)
	if err != nil {
		return fmt.Errorf("profile: %s at micro-batch %d: %w", s.Model, size, err)
	}
	tookS := s.now().Sub(began).Seconds()
	s.Progress.End(s.now())
	if round > 0 {
		s.later[size] = tookS
	}
	s.add(visitOf(size, tookS, timings))
	return s.keep(false)
}

// visits is the name under which Progress shows the visits.
const visits = "visits"

func (s *sitting) piece(size, round int) progress.Piece {
	p := progress.Piece{What: fmt.Sprintf("micro-batch %d, round %d", size, round+1), Group: visits,
		Kind: fmt.Sprintf("%d again", size), Cost: s.laterS(size)}
	if round == 0 {
		p.Kind, p.Cost = fmt.Sprintf("%d first", size), s.firstS(size)
	}
	return p
}

// left returns the visits still to make, from the i-th of a round on. In a quick sitting these are the first visits to
// further sizes, and one piece for all visits that fill the remaining leftS seconds.
func (s *sitting) left(round, i int, leftS float64) []progress.Piece {
	var pieces []progress.Piece
	if s.Quick {
		for n := i + 1; round == 0 && n < len(s.sizes); n++ {
			if slices.Contains(s.chosen(), s.sizes[n]) || len(s.visits(s.sizes[n])) > 0 {
				pieces = append(pieces, s.piece(s.sizes[n], 0))
			}
		}
		shortS := math.Inf(1)
		for _, size := range s.sizes {
			shortS = min(shortS, s.laterS(size))
		}
		return append(pieces, until(leftS-shortS, leftS))
	}
	rounds := s.rounds
	if s.Passes == 0 {
		roundS, visited := 0.0, 0
		for _, size := range s.sizes {
			roundS += s.laterS(size)
		}
		for _, size := range s.MicroBatches {
			visited = max(visited, mostRounds-len(s.visits(size)))
		}
		rounds = min(rounds, round+visited)
		if timeS := enoughS - s.visitedS(); float64(rounds-round)*roundS > timeS {
			rounds = min(rounds, round+max(1, leastRounds-len(s.visits(s.at(round, i)))))
			if timeS > 0 { // the last round is completed even if the time is over
				pieces = append(pieces, until(timeS, timeS+roundS))
			}
		}
	}
	for k := round; k < rounds; k++ {
		for n := range s.sizes {
			if k > round || n >= i {
				pieces = append(pieces, s.piece(s.at(k, n), k))
			}
		}
	}
	return pieces
}

// until returns one piece for all visits that are left. They end between `least` and `most` seconds from now.
func until(least, most float64) progress.Piece {
	return progress.Piece{What: visits, Kind: visits, Group: visits, Within: &progress.Within{Least: least, Most: most},
		Fills: true}
}

// at returns the n-th size of a round.
func (s *sitting) at(round, n int) int {
	if round == 0 {
		return s.sizes[n]
	}
	return s.sizes[len(s.sizes)-1-n]
}

// keep calls Keep, but at most once every keptEvery unless `must` is true.
func (s *sitting) keep(must bool) error {
	if now := s.now(); must || now.Sub(s.kept) > keptEvery {
		s.kept = now
		return s.Keep()
	}
	return nil
}

// keptEvery limits how much of a measurement is lost if the process is killed, in addition to the current visit.
const keptEvery = 300 * time.Millisecond
