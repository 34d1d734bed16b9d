package race

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// machine is shared by fake runners. It records each visit, and gets slower with each visit by the factor `drift`.
type machine struct {
	visits []string
	slow   float64 // factor on the time of every visit
	drift  float64 // `slow` is multiplied by `drift` after each visit
}

type fake struct {
	name    string
	on      *machine
	work    Work
	failAt  int // number of the visit that fails, from 1; 0: none
	visited int
	// disturbed makes four of five visits ten times as slow.
	disturbed bool
}

var errFake = errors.New("out of memory")

func (f *fake) Name() string { return f.name }

func (f *fake) Step(context.Context) (Work, error) {
	f.visited++
	if f.visited == f.failAt {
		return Work{}, errFake
	}
	f.on.visits = append(f.on.visits, f.name)
	if f.on.slow == 0 {
		f.on.slow, f.on.drift = 1, max(f.on.drift, 1)
	}
	w := f.work
	if f.disturbed && f.visited%5 != 0 {
		w.Time *= 10
	}
	w.Time = time.Duration(float64(w.Time) * f.on.slow)
	f.on.slow *= f.on.drift
	return w, nil
}

func TestPairsTakeTurns(t *testing.T) {
	on := &machine{}
	a := &fake{name: "a", on: on, work: Work{Samples: 30, Time: time.Second}}
	b := &fake{name: "b", on: on, work: Work{Samples: 20, Time: 2 * time.Second}}
	var told []Pair
	r, err := Pairs(t.Context(), a, b, 6, func(p Pair) { told = append(told, p) })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(on.visits, ""), "abbaabbaabba"; got != want {
		t.Errorf("visits %s, want %s", got, want)
	}
	if r.MedianRatio != 3 || r.Lo != 3 || r.Hi != 3 || r.A.Median != 30 || r.B.Median != 10 {
		t.Errorf("%+v; want 30 against 10 samples a second, 3 times", r)
	}
	if len(told) != 6 || told[5].Done != 6 || told[5].Of != 6 || told[1].AFirst || !told[2].AFirst {
		t.Errorf("progress %+v", told)
	}
}

// Every visit is 3 % slower than the one before. The rates fall by more than half, but the median ratio of two equal
// runners stays at 1, inside the interval.
func TestDriftCancels(t *testing.T) {
	on := &machine{drift: 1.03}
	a := &fake{name: "a", on: on, work: Work{Samples: 10, Time: time.Second}}
	b := &fake{name: "b", on: on, work: Work{Samples: 10, Time: time.Second}}
	r, err := Pairs(t.Context(), a, b, 16, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first, last := r.A.Rates[0], r.A.Rates[15]; last > first/2 {
		t.Fatalf("rates from %v to %v: there is no drift", first, last)
	}
	if math.Abs(r.MedianRatio-1) > 0.001 || r.Lo > 1 || r.Hi < 1 {
		t.Errorf("ratio %v in %v to %v, want 1", r.MedianRatio, r.Lo, r.Hi)
	}
}

func TestPairsRefuse(t *testing.T) {
	good := func() *fake { return &fake{name: "good", on: &machine{}, work: Work{Samples: 1, Time: time.Second}} }
	idle := good()
	idle.name, idle.work.Samples = "idle", 0
	failing := good()
	failing.name, failing.failAt = "failing", 3
	if _, err := Pairs(t.Context(), good(), good(), 5, nil); err == nil || !strings.Contains(err.Error(),
		"takes 6 at least") {
		t.Errorf("5 pairs: %v", err)
	}
	if _, err := Pairs(t.Context(), good(), idle, 6, nil); err == nil || !strings.Contains(err.Error(),
		"race: idle: 0 samples") {
		t.Errorf("no samples: %v", err)
	}
	if _, err := Pairs(t.Context(), failing, good(), 6, nil); !errors.Is(err, errFake) || !strings.Contains(err.Error(),
		"race: failing: ") {
		t.Errorf("a failing runner: %v", err)
	}
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("interrupted"))
	if _, err := Pairs(stopped, good(), good(), 6, nil); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestWarmForgets(t *testing.T) {
	on := &machine{}
	a, b := &fake{name: "a", on: on, work: Work{1, 1}}, &fake{name: "b", on: on, work: Work{1, 1}}
	if err := Warm(t.Context(), 2, a, b); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(on.visits, want) {
		t.Errorf("visits %v, want %v", on.visits, want)
	}
}
