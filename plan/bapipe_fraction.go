package plan

// boundary is where one stage ends and the next begins: before layer `layer`, of which the
// stage in front computes a part of its own, 0 for none.
type boundary struct {
	layer int
	part  float64
}

// divided is the intra-layer partition (§3.3.2): boundary layers are divided between two
// neighbours so that every accelerator works as long as any, as far as two neighbours can
// share a layer. The least time is found by bisection: within a time limit each stage takes
// as much as it can, which never hurts the stages behind it. It stops 1e-12 short.
func (h *chain) divided() ([]boundary, float64) {
	low, high := h.ideal(), h.time[0][len(h.p.Layers)]
	for i := range h.devices {
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

// fill gives each stage at most limit seconds of work; nil where layers are left over.
func (h *chain) fill(limit float64) []boundary {
	n, N := len(h.p.Layers), len(h.devices)
	var out []boundary
	layer, rest := 0, 1.0 // the first layer not given away, and how much of it is left
	for i := range N {
		room := limit
		one := func(l int) float64 { return h.time[i][l+1] - h.time[i][l] }
		stages := N - 1 - i // behind this one
		if need := rest * one(layer); need > room*(1+1e-12) {
			if rest < 1 {
				return nil // a layer is divided between two neighbours, not three
			}
		} else {
			room -= need
			layer, rest = layer+1, 1
			for layer < n && one(layer) <= room {
				room -= one(layer)
				layer++
			}
		}
		if i == N-1 {
			if layer < n {
				return nil
			}
			break
		}
		if layer > n-stages { // one layer for each stage behind
			layer = n - stages
			out = append(out, boundary{layer, 0})
			rest = 1
			continue
		}
		part := 0.0
		if t := one(layer); t > 0 && rest == 1 {
			part = min(room/t, 1)
		}
		if part < 1e-6 || part > 1-1e-6 {
			part = 0
			if len(out) == 0 && layer == 0 || len(out) > 0 && out[len(out)-1].layer >= layer {
				return nil // a stage without work
			}
		}
		out = append(out, boundary{layer, part})
		rest = 1 - part
	}
	return out
}

// crossing is the bytes that cross a boundary forward: what layer `layer` reads and, where it
// is divided, the part of its output that the stage in front has made.
func (h *chain) crossing(b boundary) int64 {
	if b.part == 0 {
		return h.cut[b.layer]
	}
	after := int64(0)
	if b.layer+1 < len(h.p.Layers) {
		after = h.cut[b.layer+1]
	}
	return h.cut[b.layer] + int64(b.part*float64(after))
}

// work is F + B of stage i between two boundaries.
func (h *chain) work(i int, from, to boundary) float64 {
	t := h.compute(i, from.layer, to.layer) - from.part*(h.time[i][min(from.layer+1, len(h.p.Layers))]-h.time[i][from.layer])
	if to.part > 0 {
		t += to.part * (h.time[i][to.layer+1] - h.time[i][to.layer])
	}
	return t
}
