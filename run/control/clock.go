package control

import "math"

// Reading is one reading of a process's clock. The clock showed AtS at a moment between AskedS and HeardS on the
// leader's clock.
type Reading struct{ AskedS, AtS, HeardS float64 }

// offsetS returns what to add to the clock to get the leader's, with an error of at most errorS.
func (r Reading) offsetS() float64 { return (r.AskedS+r.HeardS)/2 - r.AtS }
func (r Reading) errorS() float64  { return (r.HeardS - r.AskedS) / 2 }

const (
	together     = 0.1  // seconds; if two readings are closer together than this, only the quicker is kept
	drifts       = 1e-4 // seconds per second; two clocks drift apart by less
	mostReadings = 128  // number of readings kept
)

// Clock estimates a process's clock from its Readings. The leader's own clock is never read and counts as exact.
type Clock struct{ readings []Reading } // by time

// Read adds a Reading, which must be later than those before it.
func (c *Clock) Read(r Reading) {
	if n := len(c.readings); n > 0 && r.HeardS-c.readings[n-1].HeardS < together {
		if r.errorS() < c.readings[n-1].errorS() {
			c.readings[n-1] = r
		}
		return
	}
	if len(c.readings) == mostReadings { // keep the first, the last, and the quicker of each pair of readings between
		kept, i := c.readings[:1], 1
		for ; i+1 < mostReadings; i += 2 {
			best := c.readings[i]
			if c.readings[i+1].errorS() < best.errorS() {
				best = c.readings[i+1]
			}
			kept = append(kept, best)
		}
		c.readings = append(kept, c.readings[i:]...)
	}
	c.readings = append(c.readings, r)
}

// OffsetS returns how far the clock is behind the leader's at a moment, by the best Reading until now.
func (c *Clock) OffsetS(nowS float64) float64 {
	best, least := 0.0, math.Inf(1)
	for _, r := range c.readings {
		if e := r.errorS() + drifts*math.Abs(nowS-r.HeardS); e < least {
			best, least = r.offsetS(), e
		}
	}
	return best
}

// Line returns the conversion of the clock's times to the leader's, for times up to untilS on the leader's clock. Time
// t becomes t * (1 + drift) + offsetS, with an error of at most errorS if the drift is constant. The line goes through
// the first and the last Reading. If Readings differ from the line by more than their own errors, the largest excess is
// added to errorS.
func (c *Clock) Line(untilS float64) (offsetS, drift, errorS float64) {
	if len(c.readings) == 0 {
		return 0, 0, 0
	}
	first, last := c.readings[0], c.readings[len(c.readings)-1]
	offsetS, errorS = first.offsetS(), max(first.errorS(), last.errorS())
	unsure := drifts // error of the drift
	if span := last.AtS - first.AtS; span > 0 {
		drift = (last.offsetS() - first.offsetS()) / span
		offsetS -= drift * first.AtS
		unsure = min(drifts+math.Abs(drift), (first.errorS()+last.errorS())/span)
	}
	errorS += unsure * max(0, untilS-last.HeardS)
	beyond := 0.0
	for _, r := range c.readings {
		beyond = max(beyond, math.Abs(r.AtS*drift+offsetS-r.offsetS())-r.errorS())
	}
	return offsetS, drift, errorS + beyond
}
