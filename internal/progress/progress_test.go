package progress

import (
	"fmt"
	"testing"
	"time"
)

// did is a piece with the seconds that it took.
type did struct {
	Piece
	took float64
}

// worst simulates the work, and returns the largest factor by which an estimate of the remaining time was wrong. The
// Work knows all pieces from the start. It is asked in the middle and at the end of each piece. Its answers count only
// while more than a tenth of the work is left. If the Work gives a time within the first tenth of the work, or never
// gives a time, the test fails.
func worst(t *testing.T, all []did) float64 {
	t.Helper()
	var w Work
	at, total := time.Unix(0, 0), 0.0
	var left []Piece
	for _, d := range all {
		left, total = append(left, d.Piece), total+d.took
	}
	w.Plan(at, "all", left...)
	off, gone, said := 1.0, 0.0, false
	look := func(gone float64) {
		s := w.At(time.Unix(0, 0).Add(time.Duration(gone * 1e9)))
		if truth := total - gone; s.Honest && truth > total/10 {
			said = true
			ratio := s.Left.Seconds() / truth
			off = max(off, ratio, 1/ratio)
		}
		if s.Honest && gone < total/10 {
			t.Errorf("a time left is said after %v of %v s", gone, total)
		}
	}
	for _, d := range all {
		w.Begin(at.Add(time.Duration(gone*1e9)), d.Piece)
		look(gone + d.took/2)
		gone += d.took
		w.End(at.Add(time.Duration(gone * 1e9)))
		look(gone)
	}
	if !said {
		t.Error("no time left was ever said")
	}
	return off
}

// visits returns the pieces of a profile, which visits every size once in each round. Costs are proportional to sizes,
// and smaller after the first round.
func visits(rounds [][]float64, sizes []int) []did {
	var all []did
	for r, round := range rounds {
		for i, took := range round {
			p := Piece{What: fmt.Sprint(sizes[i], r), Kind: fmt.Sprint(sizes[i], r > 0), Group: "visits",
				Cost: 0.5 * float64(sizes[i])}
			if r > 0 {
				p.Cost *= 0.6
			}
			all = append(all, did{p, took})
		}
	}
	return all
}

// TestATimeLeftOfAProfileIsHonest uses measured seconds of a profile of gpt while other programs ran. It leaves out a
// round that another program made twice as long, which cannot be foreseen.
func TestATimeLeftOfAProfileIsHonest(t *testing.T) {
	again := []float64{7.0, 3.26, 1.86, 0.89}
	all := append([]did{{Piece{What: "messages", Kind: "messages", Group: "messages", Cost: 1}, 5.2},
		{Piece{What: "updates", Kind: "updates", Group: "updates", Cost: 3}, 15.4}},
		visits([][]float64{{10.6, 3.36, 2.07, 0.93}, again, again, again}, []int{8, 4, 2, 1})...)
	if off := worst(t, all); off > 1.5 {
		t.Errorf("off by a factor of %.2f", off)
	}
}

// TestATimeLeftOfTrialsIsHonest: trials' costs are known relative to each other, in a unit that is three times too
// small. The estimate learns the unit in the first fifth of the trials. The first piece is a prediction, with a cost
// that is far too high.
func TestATimeLeftOfTrialsIsHonest(t *testing.T) {
	all := []did{{Piece{What: "predicting", Kind: "predicting", Group: "predictions", Cost: 9}, 1}}
	for i := range 20 {
		cost := 1 + float64(i%5)
		p := Piece{What: fmt.Sprint(i), Kind: fmt.Sprint(i % 5), Group: "trials", Cost: cost}
		all = append(all, did{p, 3*cost + 0.5})
	}
	if off := worst(t, all); off > 1.5 {
		t.Errorf("off by a factor of %.2f", off)
	}
}

// TestASurePiece: the time left of a piece of fixed duration is known without earlier pieces. If the piece takes longer
// than this duration, it is not shown as done before it ends.
func TestASurePiece(t *testing.T) {
	var w Work
	at := time.Unix(0, 0)
	w.Begin(at, Piece{What: "searching", Cost: 10, Sure: true})
	if s := w.At(at.Add(time.Second)); s.Honest || s.Done != 0.1 || s.Left != 9*time.Second {
		t.Errorf("%+v", s)
	}
	if s := w.At(at.Add(4 * time.Second)); !s.Honest || s.Left != 6*time.Second || s.What != "searching" {
		t.Errorf("%+v", s)
	}
	if s := w.At(at.Add(30 * time.Second)); s.Left <= 0 || s.Done >= 1 {
		t.Errorf("%+v", s)
	}
	w.End(at.Add(31 * time.Second))
	if s := w.At(at.Add(31 * time.Second)); s != (State{}) {
		t.Errorf("%+v", s)
	}
}

// TestATailThatIsKnownWithinARange: here only a range is known for the duration of the last piece. With a narrow range,
// the time left is wrong by a factor of at most 1.5. With a wide range, no time left is given.
func TestATailThatIsKnownWithinARange(t *testing.T) {
	for _, c := range []struct {
		tail  Within
		took  float64
		quiet bool
	}{{Within{1, 3}, 1, false}, {Within{1, 3}, 3, false}, {Within{1, 300}, 100, true}} {
		var all []did
		for range 100 {
			all = append(all, did{Piece{What: "step", Kind: "step", Group: "step", Cost: 1}, 0.1})
		}
		all = append(all, did{Piece{What: "save", Kind: "save", Group: "save", Within: &c.tail}, c.took})
		if !c.quiet {
			if off := worst(t, all); off > 1.5 {
				t.Errorf("%v of %v s: off by a factor of %.2f", c.tail, c.took, off)
			}
			continue
		}
		var w Work
		at := time.Unix(0, 0)
		for i := range 50 {
			w.Begin(at.Add(time.Duration(i)*time.Second), all[0].Piece)
			w.Plan(at.Add(time.Duration(i)*time.Second), "all", Piece{What: "step", Kind: "step", Cost: 1, Times: 100},
				all[100].Piece)
			if s := w.At(at.Add(time.Duration(i) * time.Second)); s.Honest {
				t.Errorf("%v: %v is said to be left", c.tail, s.Left)
			}
		}
	}
}

// TestTheLastSecondsAreNotCounted: below 3 s the time left is not given, because it would be over before it is of use.
func TestTheLastSecondsAreNotCounted(t *testing.T) {
	var w Work
	at := time.Unix(0, 0)
	w.Begin(at, Piece{What: "searching", Cost: 10, Sure: true})
	for gone, honest := range map[float64]bool{6.9: true, 7.1: false, 9: false} {
		if s := w.At(at.Add(time.Duration(gone * 1e9))); s.Honest != honest {
			t.Errorf("behind %v of 10 s: %+v", gone, s)
		}
	}
}

// TestAPieceThatFillsATime: here a piece fills the time until second 20. If the other pieces take less time, the work
// ends at second 20. If they take longer, they determine the time left.
func TestAPieceThatFillsATime(t *testing.T) {
	at := time.Unix(0, 0)
	on := func(s float64) time.Time { return at.Add(time.Duration(s * 1e9)) }
	fills := Piece{What: "visits", Kind: "visits", Group: "visits", Within: &Within{20, 20}, Fills: true}
	for second, left := range map[float64]float64{2: 14, 12: 20} {
		var w Work
		for i, kind := range []string{"one", "another"} {
			w.Begin(on(float64(i)), Piece{What: kind, Kind: kind, Group: "visits", Cost: 0.5})
		}
		w.Plan(at, "visits", fills, Piece{What: "second", Kind: "second", Group: "visits", Cost: second})
		w.Begin(on(2), Piece{What: "second", Kind: "second", Group: "visits", Cost: second})
		s := w.At(on(6))
		if got := s.Left.Seconds(); !s.Honest || got/left > 1.1 || left/got > 1.1 {
			t.Errorf("of a piece of cost %v: %+v; want %v s", second, s, left)
		}
	}
}

// TestAPaceThatChangesLeavesMuchOpen: the time left is given if the pace changes by a factor of 1.2. It is not given if
// the pace changes by a factor of 6.
func TestAPaceThatChangesLeavesMuchOpen(t *testing.T) {
	for changes, want := range map[float64]bool{1: true, 1.2: true, 6: false} {
		var w Work
		at := time.Unix(0, 0)
		for i := range 40 {
			w.Begin(at, Piece{What: "step", Kind: "step", Group: "step", Cost: 1})
			took := 1.0
			if i/8%2 == 1 {
				took = changes
			}
			at = at.Add(time.Duration(took * 1e9))
			w.End(at)
		}
		w.Plan(at, "steps", Piece{What: "step", Kind: "step", Group: "step", Cost: 1, Times: 8})
		if s := w.At(at); s.Honest != want {
			t.Errorf("a pace that changes by %v: %+v", changes, s)
		}
	}
}

// TestWhatSaysHowFarItIsIsWaitedFor: if a piece of a new kind reports its own progress, its progress is not estimated
// from earlier pieces.
func TestWhatSaysHowFarItIsIsWaitedFor(t *testing.T) {
	var w Work
	at := func(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }
	far := 0.0
	all := Piece{What: "all", Kind: "predictions", Group: "predictions", Cost: 9, Far: func() float64 { return far }}
	w.Plan(at(0), "work", Piece{What: "one", Kind: "one", Group: "one", Cost: 5}, all)
	w.Begin(at(0), Piece{What: "one", Kind: "one", Group: "one", Cost: 5})
	w.End(at(0.001))
	w.Begin(at(0.001), all)
	if s := w.At(at(3)); s.Done != 0 {
		t.Errorf("done to %v, and nobody knows", s.Done)
	}
	far = 0.25
	if s := w.At(at(10)); s.Done < 0.2 || s.Done > 0.3 {
		t.Errorf("done to %v; it says a quarter", s.Done)
	}
}
