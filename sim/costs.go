package sim

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// StageCost is what one replica of a stage takes for one micro-batch. Times in
// seconds, on the worker itself; bytes as an allocator counts them.
type StageCost struct {
	ForwardS, BackwardS float64
	InputS, WeightS     float64 // the halves of a split backward
	UpdateS             float64
	EvaluateS           float64

	ActivationBytes int64 // sent to the next stage for each micro-batch
	GradientBytes   int64 // sent to the previous stage
	SavedBytes      int64 // held from forward to backward beside the input
	InputBytes      int64 // the input received, held as long
	ForwardPeak     int64 // most held at once inside a forward, above what was held before it
	BackwardPeak    int64 // likewise inside a backward
	FixedBytes      int64 // parameters, buffers, optimizer states
	ParameterBytes  int64 // what an all-reduce moves; gradients take as much again

	AllReduceS float64 // over the stage's replicas
	TiedS      float64 // sum of tied gradients
	NormS      float64 // pooling the gradient norm
}

// Costs is what every instruction of a Program costs.
type Costs struct {
	Stages [][]StageCost // [stage][replica]
	// Transfer is how long bytes are on the way between two workers: a latency that
	// others may overlap, and the time the link itself is taken.
	Transfer func(from, to int, bytes int64) (latencyS, linkS float64)
	// Link names the link that a transfer takes: transfers over one link queue, first come
	// first served. nil gives every ordered pair of workers its own.
	Link func(from, to int) [2]int
	// Occupies says whether the sending worker is kept busy by the transfer; nil is never.
	Occupies func(from, to int) bool
	// DispatchS is what the runtime adds to each computation.
	DispatchS float64
}

func (c *Costs) of(stage, replica int) *StageCost {
	replicas := c.Stages[stage]
	return &replicas[min(replica, len(replicas)-1)]
}

// Uniform is costs for formulas: every stage takes forwardS and backwardS, every
// transfer transferS without taking the link, every micro-batch holds one byte.
func Uniform(stages int, forwardS, backwardS, transferS float64) Costs {
	c := Costs{Transfer: func(int, int, int64) (float64, float64) { return transferS, 0 }}
	for range stages {
		c.Stages = append(c.Stages, []StageCost{{
			ForwardS: forwardS, BackwardS: backwardS, InputS: backwardS / 2, WeightS: backwardS / 2, EvaluateS: forwardS, SavedBytes: 1,
		}})
	}
	return c
}

// CostsOf puts a profile, a cluster and a plan together. Worker i is the plan's i-th
// device in ascending order, as in schedule.FromPlan.
func CostsOf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan) (Costs, error) {
	devices := Devices(pl)
	for _, d := range devices {
		if d < 0 || d >= len(c.Devices) {
			return Costs{}, fmt.Errorf("sim: the plan uses device %d; cluster %s has %d", d, c.Name, len(c.Devices))
		}
	}
	out := Costs{
		Transfer: func(from, to int, bytes int64) (float64, float64) {
			l := c.Levels[c.LevelOf(devices[from], devices[to])]
			return l.LatencyS, float64(bytes) / l.BandwidthBytesPerSecond
		},
		Link: func(from, to int) [2]int { return link(c, devices[from], devices[to]) },
		Occupies: func(from, to int) bool {
			return c.Levels[c.LevelOf(devices[from], devices[to])].OccupiesDevice
		},
	}
	if p.Transfer != nil {
		out.DispatchS = p.Transfer.DispatchS
	}
	for s := range pl.Stages {
		var replicas []StageCost
		for _, d := range pl.Stages[s].Devices {
			cost, err := stageCost(p, c, pl, s, d)
			if err != nil {
				return Costs{}, err
			}
			replicas = append(replicas, cost)
		}
		out.Stages = append(out.Stages, replicas)
	}
	return out, nil
}

// Devices lists a plan's devices in ascending order; worker i is the i-th.
func Devices(pl *plan.Plan) []int {
	var devices []int
	for _, st := range pl.Stages {
		devices = append(devices, st.Devices...)
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// link names what a transfer queues for. A shared level is one link for its whole group;
// half duplex is one for both directions.
func link(c *cluster.Cluster, a, b int) [2]int {
	level := c.LevelOf(a, b)
	if c.Levels[level].Shared {
		group := 1
		for _, l := range c.Levels[:level+1] {
			group *= l.Size
		}
		return [2]int{-1 - level, a / group}
	}
	if !c.Levels[level].FullDuplex && a > b {
		a, b = b, a
	}
	return [2]int{a, b}
}

func stageCost(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, s, device int) (StageCost, error) {
	st := pl.Stages[s]
	rows := pl.MicroBatch
	if pl.Replication == "split" && len(st.Devices) > 1 {
		rows = (rows + len(st.Devices) - 1) / len(st.Devices)
	}
	costs, _, err := p.At(c.Devices[device], rows)
	if err != nil {
		return StageCost{}, fmt.Errorf("sim: stage %d: %w", s, err)
	}
	var out StageCost
	held := int64(0) // saved by the layers before, while walking forward
	var saved []int64
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		layer, cost := &p.Layers[l], costs[l]
		out.ForwardS += cost.ForwardS
		out.BackwardS += cost.BackwardS
		if cost.BackwardInputS != nil && cost.BackwardWeightS != nil {
			out.InputS += *cost.BackwardInputS
			out.WeightS += *cost.BackwardWeightS
		} else {
			out.InputS += cost.BackwardS
		}
		out.UpdateS += layer.UpdateS
		out.ForwardPeak = max(out.ForwardPeak, held+cost.ForwardPeakBytes)
		held += cost.SavedBytes
		saved = append(saved, held)
		parameters := layer.ParameterBytes
		if layer.TiedTo >= 0 && layer.TiedTo < st.FirstLayer {
			parameters += layer.TiedBytes // a copy of its own on this stage
		}
		out.ParameterBytes += parameters
		out.FixedBytes += parameters*int64(1+p.OptimizerStates) + layer.BufferBytes
	}
	out.SavedBytes = held
	for i, l := 0, st.FirstLayer; l <= st.LastLayer; i, l = i+1, l+1 {
		// By the backward of this layer, the layers behind it have been freed.
		out.BackwardPeak = max(out.BackwardPeak, saved[i]-held+costs[l].BackwardPeakBytes)
	}
	out.EvaluateS = out.ForwardS
	if s > 0 {
		out.InputBytes = p.CutBytes(costs, st.FirstLayer-1)
		out.GradientBytes = out.InputBytes
	}
	if s < len(pl.Stages)-1 {
		out.ActivationBytes = p.CutBytes(costs, st.LastLayer)
	}
	if st.Recompute {
		// Only the input is kept; the forward runs again, with all it holds, inside the backward.
		out.BackwardS += out.ForwardS
		out.InputS += out.ForwardS
		out.BackwardPeak = max(out.ForwardPeak, out.SavedBytes+out.BackwardPeak)
		out.SavedBytes = 0
	}
	if len(st.Devices) > 1 {
		out.AllReduceS = c.AllReduceS(st.Devices, out.ParameterBytes)
	}
	out.TiedS = tiedS(p, c, pl, s)
	if all := Devices(pl); len(all) > 1 {
		out.NormS = c.TransferS(all[0], all[len(all)-1], 8*int64(len(p.Layers)))
	}
	return out, nil
}

// tiedS is how long the gradients of parameters shared with other stages take to be there.
func tiedS(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, s int) float64 {
	stageOf := StageOf(p, pl)
	longest := 0.0
	for l, layer := range p.Layers {
		if layer.TiedTo < 0 || stageOf[l] == stageOf[layer.TiedTo] || stageOf[l] != s && stageOf[layer.TiedTo] != s {
			continue
		}
		a, b := pl.Stages[stageOf[l]].Devices[0], pl.Stages[stageOf[layer.TiedTo]].Devices[0]
		longest = max(longest, c.TransferS(a, b, layer.TiedBytes))
	}
	return longest
}

// StageOf is the stage of each layer under a plan.
func StageOf(p *profile.Profile, pl *plan.Plan) []int {
	of := make([]int, len(p.Layers))
	for s, st := range pl.Stages {
		for l := st.FirstLayer; l <= st.LastLayer && l < len(of); l++ {
			of[l] = s
		}
	}
	return of
}

// TiedStages groups the stages that share a parameter under a plan, for schedule.Lower.
func TiedStages(p *profile.Profile, pl *plan.Plan) [][]int {
	of := StageOf(p, pl)
	groups := map[int][]int{}
	var out [][]int
	for l, layer := range p.Layers {
		if layer.TiedTo < 0 || of[l] == of[layer.TiedTo] {
			continue
		}
		g := groups[layer.TiedTo]
		if g == nil {
			g = []int{of[layer.TiedTo]}
		}
		if !slices.Contains(g, of[l]) {
			g = append(g, of[l])
		}
		groups[layer.TiedTo] = g
	}
	for l := range p.Layers {
		if g := groups[l]; g != nil && !slices.ContainsFunc(out, func(o []int) bool { return slices.Equal(o, g) }) {
			slices.Sort(g)
			out = append(out, g)
		}
	}
	return out
}
