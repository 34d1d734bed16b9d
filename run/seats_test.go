package run

import (
	"sync"
	"testing"
)

// nobody is no thread's number: the kernel refuses to bind it.
const nobody = 1 << 30

func TestSeatsAreForAsManyAsThereAreProcessors(t *testing.T) {
	two := []int{3, 5}
	for _, c := range []struct {
		allowed                 []int
		workers, cores, threads int
		seats, turn             bool
	}{
		{two, 2, 0, 1, true, false}, // a processor each
		{two, 4, 2, 1, true, true},  // in turn
		{two, 2, 2, 1, true, false},
		{two, 1, 0, 1, false, false}, // room for the scheduler to choose
		{two, 4, 1, 1, false, false},
		{two, 4, 0, 1, false, false}, // more than there are
		{two, 2, 0, 2, false, false}, // threads of its own would share the processor
		{two[:1], 1, 0, 1, false, false},
		{nil, 2, 0, 1, false, false}, // not known
	} {
		s := newSeats(c.allowed, c.workers, c.cores, c.threads)
		if (s != nil) != c.seats || s.inTurn() != c.turn {
			t.Errorf("%+v: seats %v, in turn %v", c, s != nil, s.inTurn())
		}
	}
}

func TestAWorkerTakesItsLastSeatIfItCan(t *testing.T) {
	s := newSeats([]int{3, 5}, 3, 2, 1)
	var w [3]worker
	for k := range w {
		w[k].thread, w[k].seat, w[k].bound = nobody, none, none
	}
	expect := func(what string, k, seat, bound int) {
		t.Helper()
		if w[k].seat != seat || w[k].bound != bound {
			t.Errorf("%s: worker %d has seat %d and is bound to %d; want %d and %d", what, k, w[k].seat, w[k].bound, seat, bound)
		}
	}
	s.sit(&w[0])
	s.sit(&w[1])
	s.sit(&w[2])
	expect("first come", 0, 3, 3)
	expect("first come", 1, 5, 5)
	expect("all taken", 2, none, none)
	s.rise(&w[0])
	s.rise(&w[0])
	s.sit(&w[2])
	expect("freed once", 2, 3, 3)
	s.sit(&w[0])
	expect("all taken", 0, none, 3)
	s.rise(&w[1])
	s.rise(&w[2])
	s.sit(&w[0])
	expect("its last one", 0, 3, 3)
	s.sit(&w[0])
	expect("it has one", 0, 3, 3)
	s.sit(&w[2])
	expect("the other", 2, 5, 5)
	if len(s.free) != 0 {
		t.Errorf("free: %v", s.free)
	}
	if s.sit(&w[1]) || !s.sit(&w[2]) {
		t.Error("who has no seat may compute, or who has one may not")
	}
	if !s.rise(&w[2]) || s.rise(&w[2]) {
		t.Error("a seat was given back never, or twice")
	}
}

func TestWhoeverHasAProcessorOfItsOwnMayCompute(t *testing.T) {
	w := worker{thread: nobody, seat: none, bound: none}
	for _, s := range []*seats{nil, newSeats([]int{3, 5}, 2, 0, 1)} {
		if !s.sit(&w) || w.seat != none || s.rise(&w) {
			t.Errorf("%+v: a worker that takes no turns was seated", s)
		}
	}
}

// Every ring is heard: a wait after a ring returns, and one before it too.
func TestBellIsHeard(t *testing.T) {
	ping, pong := newBell(), newBell()
	ping.ring()
	ping.ring() // still one
	ping.wait()
	var ended sync.WaitGroup
	said := 0
	ended.Go(func() {
		for range 1000 {
			ping.wait()
			said++
			pong.ring()
		}
	})
	for n := range 1000 {
		ping.ring()
		pong.wait()
		if said != n+1 {
			t.Fatalf("after ring %d the other has heard %d", n+1, said)
		}
	}
	ended.Wait()
}
