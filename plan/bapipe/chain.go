package bapipe

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/board"
)

// chain is a chain of stages with a model's costs, for one micro-batch size and schedule. Each stage is on one device
// or, with several chains side by side, on one device of each chain.
type chain struct {
	p       *profile.Profile
	c       *cluster.Cluster
	places  [][]int // stage -> its device in each chain, all of one type
	size    int     // samples of a micro-batch
	paired  bool    // forwards and backwards run at once
	cut     []int64 // bytes that cross before each layer
	read    []int64 // bytes of each layer's output that another layer reads
	time    [][]float64
	forward [][]float64
	flow    [][]board.Sum // by stage, only for boards: prefix sums
	fixed   []int64       // prefix sums of bytes: weights, gradients, optimizer's copies, buffers, frozen values
	weights []int64       // prefix sums of weights only
	saved   [][]int64     // by stage: prefix sums of features of one micro-batch
}

func newChain(r plan.Request, places [][]int, size int, family string) (*chain, error) {
	n := len(r.Profile.Layers)
	h := &chain{p: r.Profile, c: r.Cluster, places: places, size: size, paired: family == "fbp-as",
		cut: make([]int64, n+1), read: make([]int64, n), fixed: make([]int64, n+1), weights: make([]int64, n+1)}
	type sums struct {
		time, forward []float64
		saved         []int64
		flow          []board.Sum
	}
	known := map[string]sums{}
	for i, on := range places {
		kind := r.Cluster.Devices[on[0]]
		s, ok := known[kind]
		if !ok {
			costs, _, err := r.Profile.At(kind, size)
			if err != nil {
				return nil, fmt.Errorf("plan: bapipe: %w", err)
			}
			s = sums{time: make([]float64, n+1), forward: make([]float64, n+1), saved: make([]int64, n+1)}
			if profile.OfBoards(costs) {
				s.flow = make([]board.Sum, n+1)
			}
			for k, cost := range costs {
				takes := cost.ForwardS + cost.BackwardS
				if s.flow != nil {
					of := r.Profile.OnBoard(costs, k)
					s.flow[k+1] = s.flow[k].Plus(of, 1)
					if h.paired {
						takes = of.PairedS
					}
				}
				s.time[k+1] = s.time[k] + takes
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
		h.flow = append(h.flow, s.flow)
	}
	for k, l := range r.Profile.Layers {
		h.weights[k+1] = h.weights[k] + l.ParameterBytes + l.TiedBytes
		own := l.ParameterBytes + l.TiedBytes
		h.fixed[k+1] = h.fixed[k] + own + r.Profile.SummedBytes(own) + r.Profile.StateBytes(own) + l.StillBytes()
	}
	return h, nil
}

// compute returns F + B of stage i with layers from..to-1.
func (h *chain) compute(i, from, to int) float64 {
	if h.flow[i] == nil {
		return h.time[i][to] - h.time[i][from]
	}
	return h.work(i, boundary{layer: from}, boundary{layer: to})
}

// transfer returns SR into stage i: the time to send one feature map to the stage, or one gradient back. If there are
// several chains, it is the slowest chain's time.
func (h *chain) transfer(i int, bytes int64) float64 {
	if i == 0 {
		return 0
	}
	longest := 0.0
	for k, d := range h.places[i] {
		longest = max(longest, h.c.TransferS(h.places[i-1][k], d, bytes))
	}
	return longest
}

// memoryBytes returns the smallest memory limit of a stage's devices; 0 means none.
func (h *chain) memoryBytes(i int) int64 {
	least := int64(0)
	for _, d := range h.places[i] {
		if limit := h.c.MemoryBytes(d); limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// memory returns the bytes of stage i: weights and gradients (2w), the optimizer's copies, buffers and frozen values,
// and the inputs and features of `held` micro-batches.
func (h *chain) memory(i, from, to, held int) int64 {
	return h.fixed[to] - h.fixed[from] + int64(held)*(h.saved[i][to]-h.saved[i][from]+h.cut[from])
}

// ideal returns T of equation (1): 1 / sum(1/T_n), where T_n is the time of the whole model on accelerator n.
func (h *chain) ideal() float64 {
	sum := 0.0
	n := len(h.p.Layers)
	for i := range h.places {
		if t := h.time[i][n]; t > 0 {
			sum += 1 / t
		}
	}
	if sum == 0 {
		return 0
	}
	return 1 / sum
}

// balanced returns the partition whose longest stage is shortest, among those with allowed cuts and stages that fit. If
// there is none, it returns nil. Let least(i, j) be the time of the longest stage if stages 0..i-1 have the first j
// layers. It is the minimum over k of max(least(i-1, k), the time of stage i-1 with layers k..j-1). The second of these
// times grows as k falls. So the search over k goes down, and ends once stage i-1 alone takes too long.
func (h *chain) balanced(allowed func(stage, cut int) bool, fits func(i, from, to int) bool) []int {
	n, N := len(h.p.Layers), len(h.places)
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
