package control

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Converted times of a clock with constant drift are within the stated error. This holds between all readings and after
// the last, whichever direction of the messages is slower.
func TestTimesAreWithinTheirError(t *testing.T) {
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 1))
		began, pace := 100*g.NormFloat64(), 1+5e-5*g.NormFloat64()
		own := func(leaderS float64) float64 { return (leaderS - began) / pace }
		var c Clock
		now, last := 0.0, 0.0
		read := func(n int) {
			for range n {
				out, back := 1e-4*g.ExpFloat64(), 1e-4*g.ExpFloat64()
				c.Read(Reading{AskedS: now, AtS: own(now + out), HeardS: now + out + back})
				now += out + back
				last = now
			}
		}
		read(8)
		for range g.IntN(400) {
			now += 100 * g.Float64()
			read(1)
			if off := c.OffsetS(now) - (now - own(now)); math.Abs(off) > 2e-3 {
				t.Fatalf("seed %d: at %v s the offset is %v s off", seed, now, off)
			}
		}
		now += 100 * g.Float64()
		if g.IntN(2) == 0 {
			read(8)
		}
		offset, drift, within := c.Line(now)
		if within > 1e-3+(now-last)/50 {
			t.Fatalf("seed %d: an error of %v s is said of readings of 0.1 ms, %v s behind the last", seed, within, now-last)
		}
		for range 100 {
			at := now * g.Float64()
			if off := own(at)*(1+drift) + offset - at; math.Abs(off) > within+1e-9 {
				t.Fatalf("seed %d: at %v s of %v a time is %v s off; %v s are said", seed, at, now, off, within)
			}
		}
		if len(c.readings) > mostReadings {
			t.Fatalf("%d readings are kept", len(c.readings))
		}
	}
}

// One Reading differs from the line by 0.02 s. The stated error covers the difference.
func TestAClockThatIsOffItsLineIsSaidToBe(t *testing.T) {
	var c Clock
	for i := range 11 {
		at, off := 100*float64(i), 0.0
		if i == 5 {
			off = 0.02
		}
		c.Read(Reading{AskedS: at, AtS: at + 0.001 - off, HeardS: at + 0.002})
	}
	if offset, drift, within := c.Line(1000.002); offset != 0 || drift != 0 || math.Abs(within-0.020) > 1e-9 {
		t.Errorf("offset %v s, drift %v, error %v s", offset, drift, within)
	}
	if o, d, e := (&Clock{}).Line(5); o != 0 || d != 0 || e != 0 {
		t.Errorf("the leader's own clock is %v s off, with a drift of %v, within %v s", o, d, e)
	}
}

// However long a run is, its first and its newest reading are kept.
func TestTheNewestReadingIsKept(t *testing.T) {
	var c Clock
	last := Reading{HeardS: 0.001}
	c.Read(last)
	for i := range 1000 {
		next := Reading{AskedS: float64(i + 1), HeardS: float64(i+1) + 0.001}
		c.Read(next)
		if n := len(c.readings); c.readings[0].AskedS != 0 || c.readings[n-2] != last || c.readings[n-1] != next {
			t.Fatalf("reading %d is behind %+v, and the first is %+v", i+1, c.readings[n-2], c.readings[0])
		}
		last = next
	}
}
