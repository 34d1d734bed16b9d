package place

import (
	"slices"
	"sync"
	"testing"
)

func TestWorkersAreBoundWhereAsManyComputeAsThereAreProcessors(t *testing.T) {
	two := []int{3, 5}
	for _, c := range []struct {
		allowed                 []int
		workers, cores, threads int
		bound                   bool
	}{
		{two, 2, 0, 1, true},
		{two, 4, 2, 1, true}, // four workers share two cores
		{two, 2, 2, 1, true},
		{two, 2, 4, 1, true},  // 4 cores count as 2, because each worker uses one
		{two, 1, 0, 1, false}, // fewer workers than processors, so the scheduler may choose
		{two, 4, 1, 1, false},
		{two, 4, 0, 1, false},    // more workers than processors
		{two, 2, 0, 2, false},    // several threads would share a processor
		{two[:1], 1, 0, 1, true}, // this process's part is one processor
		{nil, 2, 0, 1, false},    // the kernel does not say which processors
	} {
		if got := processorsFor(c.allowed, c.workers, c.cores, c.threads); (got != nil) != c.bound || c.bound &&
			!slices.Equal(got, c.allowed) {
			t.Errorf("%+v: bound to %v", c, got)
		}
	}
}

// Processes that may use the same processors have a part each. If the parts would be uneven, a process gets no
// processors.
func TestPartsOfProcessors(t *testing.T) {
	four := []int{0, 2, 4, 6}
	for _, c := range []struct {
		part, parts int
		want        []int
	}{{0, 0, four}, {0, 1, four}, {0, 2, four[:2]}, {1, 2, four[2:]}, {3, 4, four[3:]}, {1, 3, nil}} {
		if got := (&Policy{Part: c.part, Parts: c.parts}).own(four); !slices.Equal(got, c.want) {
			t.Errorf("part %d of %d: %v, want %v", c.part, c.parts, got, c.want)
		}
	}
	if _, err := (&Policy{Part: 2, Parts: 2}).Take(1, 0, 1); err == nil {
		t.Error("the third of two parts")
	}
}

// Without processors, a worker is not bound. A worker with its own processor is bound to this processor from the
// beginning. Whenever a worker on shared processors is given a core, it is bound to that core's processor.
func TestSeats(t *testing.T) {
	on := []int{1 << 30, 1<<30 + 1} // not on any machine: the kernel refuses to bind to them
	for _, c := range []struct {
		place                     Place
		settled, first, thereupon int
	}{
		{Place{}, none, none, none},
		{Place{processors: on}, on[1], on[1], on[1]},
		{Place{processors: on, shared: true}, none, on[0], on[1]},
	} {
		var got []int
		var settled sync.WaitGroup
		settled.Go(func() {
			s := c.place.Settle(1)
			got = append(got, s.bound)
			for core := range on {
				s.Compute(core)
				got = append(got, s.bound)
			}
		})
		settled.Wait()
		if want := []int{c.settled, c.first, c.thereupon}; !slices.Equal(got, want) {
			t.Errorf("%+v: bound to %v; want %v", c.place, got, want)
		}
	}
}

// A wait returns after a ring, whether the ring comes before or after the wait begins.
func TestBellIsHeard(t *testing.T) {
	ping, pong := NewBell(), NewBell()
	ping.Ring()
	ping.Ring() // two rings before a wait count as one
	ping.Wait()
	var ended sync.WaitGroup
	said := 0
	ended.Go(func() {
		for range 1000 {
			ping.Wait()
			said++
			pong.Ring()
		}
	})
	for n := range 1000 {
		ping.Ring()
		pong.Wait()
		if said != n+1 {
			t.Fatalf("after ring %d the other has heard %d", n+1, said)
		}
	}
	ended.Wait()
}
