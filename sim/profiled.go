package sim

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/board"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/sim/memory"
)

// CostsOf returns the costs of a plan, from a profile and a cluster. Worker i is the plan's i-th device in ascending
// order, as in schedule.FromPlan. If the plan has its own order of layers, each stage is a range of that order. Each
// piece of a divided layer counts as a layer.
func CostsOf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan) (Costs, error) {
	pl, p, err := pl.Runs(p)
	if err != nil {
		return Costs{}, fmt.Errorf("sim: %w", err)
	}
	for s := range pl.Stages {
		if len(pl.Stages[s].Devices) == 0 {
			return Costs{}, fmt.Errorf("sim: stage %d of the plan is on no device", s)
		}
	}
	devices := pl.Devices()
	for _, d := range devices {
		if d < 0 || d >= len(c.Devices) {
			return Costs{}, fmt.Errorf("sim: the plan uses device %d; cluster %s has %d, counted from 0", d, c.Name,
				len(c.Devices))
		}
	}
	out := Costs{
		Transfer: func(from, to int, bytes int64) (float64, float64) {
			return between(c, devices[from], devices[to], bytes)
		},
		Links:     links(c, devices),
		OneMemory: func(from, to int) bool { return c.InOneMemory(devices[from], devices[to]) },
		Cores:     Pools(c, devices),
	}
	var types []string
	for _, d := range devices {
		types = append(types, c.Devices[d])
	}
	out.Noise = NoiseOf(p, types...)
	of := mean(p, types)
	out.SendS = of(func(m *profile.Machine) float64 { return transferOf(m).SendS })
	out.ReceiveS = of(func(m *profile.Machine) float64 { return transferOf(m).ReceiveS })
	if slices.ContainsFunc(devices, func(d int) bool { return c.DeviceTypes[c.Devices[d]].FPGA != nil }) {
		out.Streams = func(w int) bool { return c.DeviceTypes[c.Devices[devices[w]]].FPGA != nil }
	}
	for _, l := range c.Levels {
		if l.OccupiesDevice {
			out.Occupies = func(from, to int) bool {
				return c.Levels[c.LevelOf(devices[from], devices[to])].OccupiesDevice
			}
		}
	}
	known := layerCosts{p: p, of: map[layerSize][]profile.Cost{}}
	selective := known
	if slices.ContainsFunc(pl.Stages, func(st plan.Stage) bool { return st.Recompute == plan.Selective }) {
		if selective.p, err = p.Selective(); err != nil {
			return Costs{}, fmt.Errorf("sim: %w", err)
		}
		selective.of = map[layerSize][]profile.Cost{}
	}
	packed := layerCosts{p: p.Packed(pl.Boundary), of: map[layerSize][]profile.Cost{}}
	for s := range pl.Stages {
		var replicas []StageCost
		var spreads []float64
		type spreadCost struct {
			StageCost
			spread float64
		}
		of := map[string]spreadCost{} // by device type: replicas on the same type have the same costs
		for _, d := range pl.Stages[s].Devices {
			cost, ok := of[c.Devices[d]]
			if !ok {
				from := &known
				if pl.Stages[s].Recompute == plan.Selective {
					from = &selective
				}
				if cost.StageCost, cost.spread, err = stageCost(from, &packed, c, pl, s, c.Devices[d], devices); err != nil {
					return Costs{}, err
				}
				of[c.Devices[d]] = cost
			}
			replicas, spreads = append(replicas, cost.StageCost), append(spreads, cost.spread)
		}
		out.Stages, out.Noise.Spread = append(out.Stages, replicas), append(out.Noise.Spread, spreads)
	}
	out.Ports = portsOf(p, c, pl, devices, &out)
	return out, nil
}

// Pools returns the cores that workers share, with a pool for each of the cluster's core pools (usually a node). Worker
// w runs on devices[w].
func Pools(c *cluster.Cluster, devices []int) machine.Pools {
	var pools machine.Pools
	of := map[int]int{} // index in pools, by core pool number
	for w, d := range devices {
		cores := c.CoresOf(d)
		if cores == 0 {
			continue
		}
		at, known := of[c.CorePool(d)]
		if !known {
			at = len(pools)
			of[c.CorePool(d)], pools = at, append(pools, machine.Pool{Cores: cores})
		}
		pools[at].Workers = append(pools[at].Workers, w)
	}
	return pools
}

// links returns a function that caches the links between two workers.
func links(c *cluster.Cluster, devices []int) func(from, to int) [][2]int {
	known := map[[2]int][][2]int{}
	return func(from, to int) [][2]int {
		pair := [2]int{from, to}
		l, ok := known[pair]
		if !ok {
			l = c.Links(devices[from], devices[to])
			known[pair] = l
		}
		return l
	}
}

// layerCosts caches a profile's costs of all layers by device type and number of rows. Many stages of a plan need
// them, and scaling or interpolating a long profile takes time.
type layerCosts struct {
	p  *profile.Profile
	of map[layerSize][]profile.Cost
}

type layerSize struct {
	device string
	rows   int
}

func (k *layerCosts) at(device string, rows int) ([]profile.Cost, error) {
	size := layerSize{device, rows}
	if costs, ok := k.of[size]; ok {
		return costs, nil
	}
	costs, _, err := k.p.At(device, rows)
	if err == nil {
		k.of[size] = costs
	}
	return costs, err
}

// stageCost adds up the layers of a stage on one type of device. It also returns the spread of the stage's computations
// (Noise.Spread). `packed` caches the costs in the plan's packing format, and `all` has the plan's devices.
func stageCost(known, packed *layerCosts, c *cluster.Cluster, pl *plan.Plan, s int, device string,
	all []int) (out StageCost, spread float64, err error) {
	p, st := known.p, pl.Stages[s]
	rows := pl.MicroBatch
	if pl.Replication == "split" && len(st.Devices) > 1 {
		rows = (rows + len(st.Devices) - 1) / len(st.Devices)
	}
	costs, err := known.at(device, rows)
	if err != nil {
		return StageCost{}, 0, fmt.Errorf("sim: stage %d: %w", s, err)
	}
	segmented := againOf(p, st)
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		cost := &costs[l]
		bare, again := cost.Again()
		forward, backward := cost.ForwardS, cost.BackwardS
		out.EvaluateS += cost.FeedS + bare
		if segmented[l-st.FirstLayer] {
			out.ForwardS += cost.FeedS + bare
			out.BackwardS += again
			out.InputS += max(0, again-backward)
		} else {
			out.ForwardS += cost.FeedS + forward
			out.BackwardS += backward
		}
		if cost.BackwardInputS != nil && cost.BackwardWeightS != nil {
			out.InputS += *cost.BackwardInputS
			out.WeightS += *cost.BackwardWeightS
		} else {
			out.InputS += backward
		}
		out.UpdateTimes.Add(p.Layers[l].UpdatesOn(device))
		spread += (cost.ForwardS + cost.BackwardS) * cost.Spread
	}
	out.onBoard(p, c.DeviceTypes[device], costs, st)
	if all := out.ForwardS + out.BackwardS; all > 0 {
		spread /= all
	}
	out.Held = memory.Of(p, costs, st, pl.Shard)
	if st.FirstLayer > 0 {
		out.GradientBytes = p.GradientBytes(costs, st.FirstLayer-1)
	}
	if pl.Boundary.Packs() {
		if out.Packed, err = packedCost(packed, c, pl, s, device, rows, &out); err != nil {
			return StageCost{}, 0, fmt.Errorf("sim: stage %d: %w", s, err)
		}
	}
	if len(st.Devices) > 1 {
		out.replicated(p, c, costs, pl, s, device, len(all))
	}
	if kernels := c.DeviceTypes[device].Kernels; kernels != nil && slices.IndexFunc(pl.Stages, func(st plan.Stage) bool {
		return slices.Contains(st.Devices, pl.Stages[s].Devices[0])
	}) == s { // once per step, even if a device has several stages
		out.UpdateS += kernels.StepS
	}
	out.TiedS = tiedS(p, c, pl, s)
	if len(all) > 1 {
		out.NormS = c.TransferS(all[0], all[len(all)-1], 8*int64(len(p.Layers)))
	}
	return out, spread, nil
}

// onBoard adjusts a stage's costs if they are those of an FPGA board. The memory and the slices of a board work in
// parallel, and a forward and a backward at once may take less time than one after the other.
func (k *StageCost) onBoard(p *profile.Profile, d cluster.DeviceType, costs []profile.Cost, st plan.Stage) {
	if !profile.OfBoards(costs) {
		return
	}
	var sum board.Sum
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		sum = sum.Plus(p.OnBoard(costs, l), 1)
	}
	sum.PairedS += k.ForwardS + k.BackwardS - sum.ForwardS - sum.BackwardS // recomputation, and reading the data
	sum.ForwardS, sum.BackwardS = k.ForwardS, k.BackwardS
	k.ForwardS, k.BackwardS, k.PairedS = sum.Times(d)
	k.InputS, k.EvaluateS = k.BackwardS-k.WeightS, max(k.EvaluateS, k.ForwardS)
}

// packedCost returns what a stage sends and receives in the plan's packing format. `whole` is its cost without packing.
func packedCost(known *layerCosts, c *cluster.Cluster, pl *plan.Plan, s int, device string, rows int,
	whole *StageCost) (Packed, error) {
	p := known.p
	costs, err := known.at(device, rows)
	if err != nil {
		return Packed{}, err
	}
	first, last := pl.Stages[s].FirstLayer-1, pl.Stages[s].LastLayer
	out := Packed{On: true}
	pack, unpack := PackingS(p, c, pl.Boundary, device)
	if first >= 0 {
		out.InputBytes, out.GradientBytes = p.CutBytes(costs, first), p.GradientBytes(costs, first)
		out.InputS = unpack(whole.InputBytes, out.InputBytes)
		out.GradientS = pack(whole.GradientBytes, out.GradientBytes)
	}
	if last+1 < len(p.Layers) {
		out.ActivationBytes, out.BackBytes = p.CutBytes(costs, last), p.GradientBytes(costs, last)
		out.ActivationS = pack(whole.ActivationBytes, out.ActivationBytes)
		out.BackS = unpack(whole.ActivationBytes-whole.NoGradientBytes, out.BackBytes)
	}
	return out, nil
}

// PackingS returns functions for the time to pack and to unpack numbers, in seconds. They use the measured rates. If
// none were measured, they assume that the whole and the packed copy each move once at the device's memory bandwidth.
// If that bandwidth is not known either, packing takes no time.
func PackingS(p *profile.Profile, c *cluster.Cluster, f packing.Format, device string) (pack,
	unpack func(whole, packed int64) float64) {
	if measured, known := p.On(device).Transfer.PackingIn(f); known {
		return func(whole, _ int64) float64 { return float64(whole) / measured.PackBytesPerSecond },
			func(whole, _ int64) float64 { return float64(whole) / measured.UnpackBytesPerSecond }
	}
	pass := func(whole, packed int64) float64 {
		if bandwidth := c.DeviceTypes[device].MemoryBandwidthBytesPerSecond; bandwidth > 0 {
			return float64(whole+packed) / bandwidth
		}
		return 0
	}
	return pass, pass
}

// tiedS returns the time of the longest transfer of gradients of parameters that a stage shares with other stages.
// Replica r gets them from the other stage's replica r, modulo the number of replicas there.
func tiedS(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, s int) float64 {
	stageOf := pl.StageOf(len(p.Layers))
	longest := 0.0
	for l, layer := range p.Layers {
		if layer.TiedTo < 0 || stageOf[l] == stageOf[layer.TiedTo] || stageOf[l] != s && stageOf[layer.TiedTo] != s {
			continue
		}
		other := pl.Stages[stageOf[l]+stageOf[layer.TiedTo]-s].Devices
		for r, device := range pl.Stages[s].Devices {
			longest = max(longest, c.TransferS(other[r%len(other)], device, layer.TiedBytes))
		}
	}
	return longest
}
