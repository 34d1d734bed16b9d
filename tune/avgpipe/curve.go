package avgpipe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Level is a part of a device's computing time with constant utilisation.
type Level struct {
	ForS float64 `json:"for_s"`       // seconds
	Phi  float64 `json:"utilisation"` // fraction of the device's peak, 0 to 1
}

// Curve is AvgPipe's phi^k(t) (section 5.2.2, Fig. 8): the utilisation of one device over its computing time for one
// batch. It is piecewise constant, so its integrals are sums. It leaves out bubbles and blocking communication; its
// length is the paper's T_gpu.
type Curve []Level

// Length returns T_gpu, the device's computing time in seconds.
func (c Curve) Length() float64 {
	sum := 0.0
	for _, l := range c {
		sum += l.ForS
	}
	return sum
}

// Volume returns the integral of phi: the seconds that the computation takes at the device's peak.
func (c Curve) Volume() float64 {
	sum := 0.0
	for _, l := range c {
		sum += l.ForS * l.Phi
	}
	return sum
}

// Mean returns the utilisation while computing, or 0 for a device that never computes.
func (c Curve) Mean() float64 {
	if t := c.Length(); t > 0 {
		return c.Volume() / t
	}
	return 0
}

// Overload returns the integral of max(`scale` phi(t) - 1, 0), in seconds. It is the part of a curve multiplied by
// `scale` that exceeds the device's peak (the shaded area of Fig. 8).
func (c Curve) Overload(scale float64) float64 {
	sum := 0.0
	for _, l := range c {
		sum += l.ForS * max(scale*l.Phi-1, 0)
	}
	return sum
}

// add appends a level. If the last level has the same utilisation, add lengthens that level.
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

// scaled returns the curve with its times multiplied.
func (c Curve) scaled(by float64) Curve {
	out := make(Curve, len(c))
	for i, l := range c {
		out[i] = Level{l.ForS * by, l.Phi}
	}
	return out
}

// mostWritten is the largest number of levels in the JSON of a curve.
const mostWritten = 1 << 11

// MarshalJSON writes the curve. If there are more than mostWritten levels, it joins neighbouring levels, which keeps
// length and volume.
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

// check refuses levels of negative or infinite length, and utilisations outside 0 to 1.
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
