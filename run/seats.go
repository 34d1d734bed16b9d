package run

import "slices"

// seats says on which processor each worker computes, where as many workers compute at once
// as there are processors.
//
// A scheduler that is left to itself places a worker that wakes on the processor of one that
// is about to sleep, or on its own old one where another worker is computing, and leaves it
// there for milliseconds beside an idle processor, because a thread that has just run is
// dear to move. Four workers on two processors lost a tenth of their time so. Who may compute
// is the Gate's business; a worker that may takes a free seat, its last one if it can have
// it, and is bound to that processor before it is woken. It keeps its seat until it waits: were
// another woken there at the end of a computation, what was computed would not be sent before
// that other has computed too.
//
// The executor's mu guards it. nil seats nobody.
type seats struct {
	free []int // processors on which nobody computes
	turn bool  // workers take seats in turn; otherwise each keeps the one it has
}

// none is the seat of a worker that has none.
const none = -1

// newSeats is the seats of workers that are to use `cores` processors, 0 for one each: nil
// where that is not all that there are, where there is nothing to choose, and where a worker
// has threads of its own, which would share its processor.
func newSeats(allowed []int, workers, cores, threads int) *seats {
	turn := cores > 0 && cores < workers
	if !turn {
		cores = workers
	}
	if len(allowed) != cores || cores < 2 || threads > 1 {
		return nil
	}
	return &seats{free: slices.Clone(allowed), turn: turn}
}

// inTurn says whether workers take turns on the processors.
func (s *seats) inTurn() bool { return s != nil && s.turn }

// settle gives a worker that keeps its seat the one of its rank. The caller is its thread.
func (s *seats) settle(rank int) {
	if s != nil && !s.turn {
		pinTo(threadID(), s.free[rank])
	}
}

// sit gives w a seat, if it has none, and says whether it may compute: where all seats are taken, it may not.
func (s *seats) sit(w *worker) bool {
	if s == nil || !s.turn || w.seat != none {
		return true
	}
	if len(s.free) == 0 {
		return false
	}
	at := max(0, slices.Index(s.free, w.bound))
	w.seat = s.free[at]
	s.free = slices.Delete(s.free, at, at+1)
	if w.seat != w.bound {
		w.bound = w.seat
		pinTo(w.thread, w.seat)
	}
	return true
}

// rise takes w's seat back, and says whether it had one.
func (s *seats) rise(w *worker) bool {
	if s == nil || w.seat == none {
		return false
	}
	s.free = append(s.free, w.seat)
	w.seat = none
	return true
}
