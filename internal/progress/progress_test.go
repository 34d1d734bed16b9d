package progress

import (
	"fmt"
	"testing"
	"time"
)

// did is a piece that took so long, in seconds.
type did struct {
	Piece
	took float64
}

// worst plays work through, told of all that is left from the start, and is the largest factor by which a
// time left that was said was off, at the pieces' ends and middles, while a tenth of the work was left.
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

// visits is rounds over sizes as a profile makes them, with the first visit's cost known from the one before.
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

// What gpt's sizes took on two cores, in seconds: measured with other programs on them, rounds 1, 2, 2 and
// 2. Another round met a program that made it take twice as long, which no time left foresees.
func TestATimeLeftOfAProfileIsHonest(t *testing.T) {
	again := []float64{7.0, 3.26, 1.86, 0.89}
	all := append([]did{{Piece{What: "messages", Kind: "messages", Group: "messages", Cost: 1}, 5.2},
		{Piece{What: "updates", Kind: "updates", Group: "updates", Cost: 3}, 15.4}},
		visits([][]float64{{10.6, 3.36, 2.07, 0.93}, again, again, again}, []int{8, 4, 2, 1})...)
	if off := worst(t, all); off > 1.5 {
		t.Errorf("off by a factor of %.2f", off)
	}
}

// Trials of a grid whose costs are known among themselves, in a unit that is three times too small, behind predictions
// whose cost nobody knew: the unit is learned in the first fifth.
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

// A piece that is told to take so long needs no experience, and one that overruns is never quite done.
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
