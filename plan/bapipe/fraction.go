package bapipe

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// boundary is where one stage ends and the next begins: before layer `layer` or inside it. The earlier stages compute
// the fraction `part` of that layer; 0 means none.
type boundary struct {
	layer int
	part  float64
}

// divided returns the intra-layer partition (§3.3.2). A layer at a boundary is divided between neighbours, and a long
// layer between several stages, so that all accelerators work for the same time. Bisection finds the least time. Within
// a time limit each stage takes as much work as it can, which never hurts the later stages. The search stops at a
// relative precision of 1e-12.
func (h *chain) divided() ([]boundary, float64) {
	// The search begins at 0 and not at T of equation (1). T is no lower bound if each device type is better at
	// different layers.
	low, high := 0.0, h.time[0][len(h.p.Layers)]
	for i := range h.places {
		high = max(high, h.time[i][len(h.p.Layers)])
	}
	var best []boundary
	limit := high
	for range 200 {
		mid := (low + high) / 2
		if b := h.fill(mid); b != nil {
			best, high, limit = b, mid, mid
		} else {
			low = mid
		}
		if high-low <= 1e-12*high {
			break
		}
	}
	return best, limit
}

// inFeatures moves boundaries that are inside layers to places where `millrace train` can divide the layers. Such a
// place is between two features, if the layer has some (profile.Layer.Features). Otherwise it is the nearer end of the
// layer. inFeatures returns nil if a stage would be empty.
func (h *chain) inFeatures(bounds []boundary) []boundary {
	out := slices.Clone(bounds)
	last := boundary{}
	for i := range out {
		b := &out[i]
		if n := float64(max(1, h.p.Layers[b.layer].Features)); b.part > 0 {
			if b.part = math.Round(b.part*n) / n; b.part == 1 {
				*b = boundary{layer: b.layer + 1}
			}
		}
		if b.layer >= len(h.p.Layers) || b.layer < last.layer || b.layer == last.layer && b.part <= last.part {
			return nil
		}
		last = *b
	}
	return out
}

// fill gives each stage at most `limit` seconds of work. It returns nil if layers are left over or a stage would be
// empty. A part of less than 1e-9 of a layer is not split off.
func (h *chain) fill(limit float64) []boundary {
	const least = 1e-9
	n, N := len(h.p.Layers), len(h.places)
	var out []boundary
	at := boundary{}
	for i := range N {
		from, room := at, limit
		for at.layer < n && room > 0 {
			one := h.time[i][at.layer+1] - h.time[i][at.layer]
			if need := (1 - at.part) * one; need > room*(1+1e-12) {
				done := room / one
				if done < least {
					break
				}
				at.part += done
				if at.part < 1-least {
					break
				}
				room = 0
			} else {
				room -= need
			}
			at = boundary{layer: at.layer + 1}
		}
		if i == N-1 {
			break
		}
		// Leave at least half a layer for each later stage. This bound does not depend on the limit, and the bisection
		// relies on that.
		if last := n - (N - 1 - i); at.layer > last || at.layer == last && at.part > 0.5 {
			at = boundary{layer: last, part: 0.5}
		}
		if at == from {
			return nil
		}
		out = append(out, at)
	}
	if at.layer < n {
		return nil
	}
	return out
}

// crossing returns the bytes that cross a boundary forward: what layer `layer` and the layers after it read from
// earlier layers. If layer `layer` is divided, the part of its output that earlier stages made is added.
func (h *chain) crossing(b boundary) int64 {
	if b.part == 0 {
		return h.cut[b.layer]
	}
	return h.cut[b.layer] + profile.PartBytes(h.read[b.layer], b.part)
}

// work returns the time of stage i between two boundaries: F + B, or less on a board that computes both at once.
func (h *chain) work(i int, from, to boundary) float64 {
	if h.flow[i] == nil {
		return h.time[i][to.layer] - h.time[i][from.layer] + borders(h.time[i], from, to)
	}
	forward, backward, paired := h.onBoard(i, from, to)
	if h.paired {
		return paired
	}
	return forward + backward
}

// onBoard returns a board's times between two boundaries: forward and backward separately, and the two at once.
func (h *chain) onBoard(i int, from, to boundary) (forward, backward, paired float64) {
	s := h.flow[i]
	sum := s[to.layer].Plus(s[from.layer], -1)
	if from.part > 0 {
		sum = sum.Plus(s[from.layer+1], -from.part).Plus(s[from.layer], from.part)
	}
	if to.part > 0 {
		sum = sum.Plus(s[to.layer+1], to.part).Plus(s[to.layer], -to.part)
	}
	return sum.Times(h.c.DeviceTypes[h.c.Devices[h.places[i][0]]])
}

// borders returns how much the divided layers at a stage's two boundaries change a sum over whole layers. `sums` has
// the prefix sums. The part of the layer before the first boundary belongs to an earlier stage, so it is subtracted.
// The part before the second boundary belongs to this stage, so it is added.
func borders[T int64 | float64](sums []T, from, to boundary) (change T) {
	if from.part > 0 {
		change -= T(from.part * float64(sums[from.layer+1]-sums[from.layer]))
	}
	if to.part > 0 {
		change += T(to.part * float64(sums[to.layer+1]-sums[to.layer]))
	}
	return change
}

// holds returns the memory between two boundaries. For a divided layer, a stage holds its part of the weights and
// features, and the input that it receives.
func (h *chain) holds(i int, from, to boundary, held int) int64 {
	features := borders(h.saved[i], from, to) + h.crossing(from) - h.cut[from.layer]
	return h.memory(i, from.layer, to.layer, held) + borders(h.fixed, from, to) + int64(held)*features
}
