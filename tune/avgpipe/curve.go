package avgpipe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Level is a stretch of a device's computing time during which its utilisation stays the same.
type Level struct {
	ForS float64 `json:"for_s"`       // seconds
	Phi  float64 `json:"utilisation"` // part of the device's peak, 0 to 1
}

// Curve is AvgPipe's phi^k(t) (section 5.2.2, Fig. 8): the utilisation of one device over the
// time in which it computes for one batch, piecewise constant, so that its integrals are
// sums. Bubbles and blocking communication are not in it: the paper's T_gpu is its length.
type Curve []Level

// Length is T_gpu: for how long the device computes, seconds.
func (c Curve) Length() float64 {
	sum := 0.0
	for _, l := range c {
		sum += l.ForS
	}
	return sum
}

// Volume is the integral of phi: the computation itself, in seconds at the device's peak.
func (c Curve) Volume() float64 {
	sum := 0.0
	for _, l := range c {
		sum += l.ForS * l.Phi
	}
	return sum
}

// Mean is the utilisation while computing, 0 for a device that never does.
func (c Curve) Mean() float64 {
	if t := c.Length(); t > 0 {
		return c.Volume() / t
	}
	return 0
}

// Overload is the integral of max(scale phi(t) - 1, 0): what a curve scale times as high asks
// of the device beyond its peak, in seconds (the shaded area of Fig. 8).
func (c Curve) Overload(scale float64) float64 {
	sum := 0.0
	for _, l := range c {
		sum += l.ForS * max(scale*l.Phi-1, 0)
	}
	return sum
}

// add appends a stretch, joined to the one before where the utilisation is the same.
func (c Curve) add(forS, phi float64) Curve {
	if forS <= 0 {
		return c
	}
	if n := len(c); n > 0 && c[n-1].Phi == phi {
		c[n-1].ForS += forS
		return c
	}
	return append(c, Level{forS, phi})
}

// scaled is the curve with its time stretched.
func (c Curve) scaled(by float64) Curve {
	out := make(Curve, len(c))
	for i, l := range c {
		out[i] = Level{l.ForS * by, l.Phi}
	}
	return out
}

// mostWritten is how many stretches of a curve are written down.
const mostWritten = 1 << 11

// MarshalJSON writes the curve down: of more than mostWritten stretches neighbours are joined, so that length and
// volume stay what they are.
func (c Curve) MarshalJSON() ([]byte, error) {
	each := (len(c) + mostWritten - 1) / mostWritten
	levels := []Level(c)
	if each > 1 {
		levels = nil
		for part := range slices.Chunk(c, each) {
			levels = append(levels, Level{Curve(part).Length(), Curve(part).Mean()})
		}
	}
	return json.Marshal(levels)
}

// check refuses curves that are none: stretches of negative or endless length, utilisation
// outside of 0 to 1.
func (c Curve) check() error {
	for i, l := range c {
		if !(l.ForS >= 0) || math.IsInf(l.ForS, 0) {
			return fmt.Errorf("stretch %d of the utilisation curve lasts %v s; it must be a number, 0 or more", i, l.ForS)
		}
		if !(l.Phi >= 0 && l.Phi <= 1) {
			return fmt.Errorf("stretch %d of the utilisation curve is at %v; utilisation is 0 to 1", i, l.Phi)
		}
	}
	return nil
}
