package bapipe

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// boundary is where one stage ends and the next begins: before layer `layer`. The stages in front compute a part of
// that layer, 0 for none.
type boundary struct {
	layer int
	part  float64
}

// divided is the intra-layer partition (§3.3.2): boundary layers are divided between
// neighbours, a long one between several, so that every accelerator works as long as any.
// The least time is found by bisection: within a time limit each stage takes as much
// as it can, which never hurts the stages behind it. It stops 1e-12 short.
func (h *chain) divided() ([]boundary, float64) {
	// T of equation (1) is no lower bound where one type is better at some layers than at others.
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

// inFeatures moves boundaries inside layers to where train divides them: between two features of a layer that has some
// (profile.Layer.Features), or to the nearer end of another. nil: a stage would have nothing to do.
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

// fill gives each stage at most limit seconds of work; nil where layers are left over, or a
// stage would have nothing to do. What two stages would share to less than 1e-9 of a
// layer belongs to one.
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
		// Half a layer is left for each stage behind. The bound must not fall where the limit
		// grows, or bisection would lose its way.
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

// crossing is the bytes that cross a boundary forward: what layer `layer` reads and layers behind it, and,
// where it is divided, the part of its output that the stages in front have made.
func (h *chain) crossing(b boundary) int64 {
	if b.part == 0 {
		return h.cut[b.layer]
	}
	return h.cut[b.layer] + profile.PartBytes(h.read[b.layer], b.part)
}

// work is F + B of stage i between two boundaries.
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

// onBoard is what a board takes between two boundaries: forward and backward alone, and the two at once.
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

// borders is how divided layers at a stage's two boundaries change a sum over whole layers, given prefix sums. The part
// in front of the first boundary does not belong to the stage, and that in front of the second does.
func borders[T int64 | float64](sums []T, from, to boundary) (change T) {
	if from.part > 0 {
		change -= T(from.part * float64(sums[from.layer+1]-sums[from.layer]))
	}
	if to.part > 0 {
		change += T(to.part * float64(sums[to.layer+1]-sums[to.layer]))
	}
	return change
}

// holds is memory between two boundaries: of a divided layer a stage has its part of the weights and
// features, and the input that it receives.
func (h *chain) holds(i int, from, to boundary, held int) int64 {
	features := borders(h.saved[i], from, to) + h.crossing(from) - h.cut[from.layer]
	return h.memory(i, from.layer, to.layer, held) + borders(h.fixed, from, to) + int64(held)*features
}
