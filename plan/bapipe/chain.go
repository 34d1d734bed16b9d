package bapipe

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// chain is a daisy chain of devices with a model's costs on them, for one micro-batch size.
type chain struct {
	p       *profile.Profile
	c       *cluster.Cluster
	devices []int       // stage -> device
	size    int         // samples of a micro-batch
	spill   bool        // weights that do not fit on the chip come from memory
	cut     []int64     // before each layer: what crosses there
	read    []int64     // the output of each layer that another one reads
	time    [][]float64 // by stage: prefix sums of forward + backward
	forward [][]float64
	fixed   []int64   // prefix sums of bytes: weights, gradients, optimizer's copies
	weights []int64   // prefix sums of weights alone
	saved   [][]int64 // by stage: prefix sums of features of one micro-batch
}

func newChain(r plan.Request, devices []int, size int, spill bool) (*chain, error) {
	n := len(r.Profile.Layers)
	h := &chain{p: r.Profile, c: r.Cluster, devices: devices, size: size, spill: spill,
		cut: make([]int64, n+1), read: make([]int64, n), fixed: make([]int64, n+1), weights: make([]int64, n+1)}
	type sums struct {
		time, forward []float64
		saved         []int64
	}
	known := map[string]sums{}
	for i, d := range devices {
		kind := r.Cluster.Devices[d]
		s, ok := known[kind]
		if !ok {
			costs, _, err := r.Profile.At(kind, size)
			if err != nil {
				return nil, fmt.Errorf("plan: bapipe: %w", err)
			}
			s = sums{make([]float64, n+1), make([]float64, n+1), make([]int64, n+1)}
			for k, cost := range costs {
				s.time[k+1] = s.time[k] + cost.ForwardS + cost.BackwardS
				s.forward[k+1] = s.forward[k] + cost.ForwardS
				s.saved[k+1] = s.saved[k] + cost.SavedBytes
			}
			known[kind] = s
			if i == 0 {
				for k := 1; k < n; k++ {
					h.cut[k] = r.Profile.CutBytes(costs, k-1)
				}
				for _, l := range r.Profile.Layers {
					for _, from := range l.From {
						if from >= 0 {
							h.read[from] = costs[from].OutputBytes
						}
					}
				}
			}
		}
		h.time, h.forward, h.saved = append(h.time, s.time), append(h.forward, s.forward), append(h.saved, s.saved)
	}
	for k, l := range r.Profile.Layers {
		h.weights[k+1] = h.weights[k] + l.ParameterBytes + l.TiedBytes
		own := l.ParameterBytes + l.TiedBytes
		h.fixed[k+1] = h.fixed[k] + own + r.Profile.SummedBytes(own) + r.Profile.StateBytes(own) + l.StillBytes()
	}
	return h, nil
}

// compute is F + B of stage i with layers from..to-1. Where weights spill, those beyond the
// chip's memory pass through its bandwidth once forward and twice backward.
func (h *chain) compute(i, from, to int) float64 {
	t := h.time[i][to] - h.time[i][from]
	if h.spill {
		kind := h.c.DeviceTypes[h.c.Devices[h.devices[i]]]
		if chip := kind.OnChipBytes(); chip > 0 && kind.MemoryBandwidthBytesPerSecond > 0 {
			if over := h.weights[to] - h.weights[from] - chip; over > 0 {
				t += 3 * float64(over) / kind.MemoryBandwidthBytesPerSecond
			}
		}
	}
	return t
}

// transfer is SR into stage i: one feature map, or one error the other way.
func (h *chain) transfer(i int, bytes int64) float64 {
	if i == 0 {
		return 0
	}
	return h.c.TransferS(h.devices[i-1], h.devices[i], bytes)
}

// memory of stage i: 2w and the optimizer's copies, and the features of so many micro-batches.
func (h *chain) memory(i, from, to, held int) int64 {
	return h.fixed[to] - h.fixed[from] + int64(held)*(h.saved[i][to]-h.saved[i][from]+h.cut[from])
}

// ideal is T of equation (1): 1 / sum(1/T_n), with T_n the whole model on accelerator n.
func (h *chain) ideal() float64 {
	sum := 0.0
	n := len(h.p.Layers)
	for i := range h.devices {
		if t := h.time[i][n]; t > 0 {
			sum += 1 / t
		}
	}
	if sum == 0 {
		return 0
	}
	return 1 / sum
}

// balanced is the partition whose longest stage is the shortest that any has, over cuts that
// are allowed and stages that fit: least(i, j), of the first j layers on stages 0..i-1, is
// the least over k of max(least(i-1, k), stage i-1 of layers k..j-1). Stages only grow as k
// falls, so the search for k ends where the stage alone is too long. nil: there is none.
func (h *chain) balanced(allowed func(stage, cut int) bool, fits func(i, from, to int) bool) []int {
	n, N := len(h.p.Layers), len(h.devices)
	before := make([]float64, n+1)
	for j := range before {
		before[j] = math.Inf(1)
	}
	before[0] = 0
	origin := make([][]int32, N+1)
	for i := 1; i <= N; i++ {
		now := make([]float64, n+1)
		origin[i] = make([]int32, n+1)
		for j := range now {
			now[j] = math.Inf(1)
		}
		last := n - (N - i)
		for j := i; j <= last; j++ {
			if i == N && j < n {
				continue
			}
			for k := j - 1; k >= i-1; k-- {
				t := h.compute(i-1, k, j)
				if t >= now[j] {
					break
				}
				if before[k] >= now[j] || k > 0 && !allowed(i-1, k) || !fits(i-1, k, j) {
					continue
				}
				now[j], origin[i][j] = max(before[k], t), int32(k)
			}
		}
		before = now
	}
	if math.IsInf(before[n], 1) {
		return nil
	}
	cuts := make([]int, N-1)
	for i, j := N, n; i > 1; i-- {
		j = int(origin[i][j])
		cuts[i-2] = j
	}
	return cuts
}
