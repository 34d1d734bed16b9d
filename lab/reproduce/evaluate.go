package reproduce

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
)

// bench is a workload on a cluster, with costs for every micro-batch size that is asked for.
type bench struct {
	workload string
	m        *model.Model
	c        *cluster.Cluster
	a        profile.Analysis
	given    *profile.Profile // published, if any
	// collectives is the part of the wires' rate that all-reduces reach; 0 is all of it.
	collectives float64
	// boundaries is the part of the described bytes that boundaries carry; 0 is all of it.
	boundaries float64
	// quicker is the part of the described time that layers compute for; 0 is all of it.
	quicker float64
}

// carried is what a boundary carries of so many described bytes.
func (b *bench) carried(bytes int64) float64 {
	if b.boundaries > 0 {
		return b.boundaries * float64(bytes)
	}
	return float64(bytes)
}

// allReduceS is how long an all-reduce among devices takes, in seconds.
func (b *bench) allReduceS(devices []int, bytes int64) float64 {
	t := b.c.AllReduceS(devices, bytes)
	if b.collectives > 0 {
		t /= b.collectives
	}
	return t
}

func newBench(o Options, workload string, settings map[string]any, preset string) (*bench, error) {
	m, err := model.Build(workload, settings)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Preset(preset)
	if err != nil {
		return nil, err
	}
	b := &bench{workload: workload, m: m, c: c, a: profile.Analysis{Optimizer: "momentum", States: 1}}
	if o.Profiles != "" && settings == nil {
		if b.given, err = published(o.Profiles, preset, workload); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// profile has costs for these micro-batch sizes.
func (b *bench) profile(sizes ...int) (*profile.Profile, error) {
	if b.given != nil {
		return b.given, nil
	}
	a := b.a
	a.Sizes = slices.Clone(sizes)
	slices.Sort(a.Sizes)
	a.Sizes = slices.Compact(a.Sizes)
	return profile.Analyze(b.m, b.c.DeviceTypes, a)
}

// costs of a whole micro-batch on the cluster's first device.
func (b *bench) costs(size int) (*profile.Profile, []profile.Cost, error) {
	p, err := b.profile(size)
	if err != nil {
		return nil, nil, err
	}
	costs, _, err := p.At(b.c.Devices[0], size)
	if b.quicker > 0 {
		costs = slices.Clone(costs)
		for i := range costs {
			costs[i].ForwardS, costs[i].BackwardS = b.quicker*costs[i].ForwardS, b.quicker*costs[i].BackwardS
		}
	}
	return p, costs, err
}

// computeS is forward and backward of all layers.
func computeS(costs []profile.Cost) float64 {
	sum := 0.0
	for _, c := range costs {
		sum += c.ForwardS + c.BackwardS
	}
	return sum
}

// run simulates a plan: its steady step over three, and what devices hold.
func (b *bench) run(pl *plan.Plan) (sim.Summary, error) {
	sizes := []int{1, pl.MicroBatch}
	for _, s := range pl.Stages {
		n := len(s.Devices)
		sizes = append(sizes, (pl.MicroBatch+n-1)/n)
	}
	p, err := b.profile(sizes...)
	if err != nil {
		return sim.Summary{}, err
	}
	pl.ModelID = p.ModelID
	program, err := programs.Build(pl, p.TiedLayers(), false, 3)
	if err != nil {
		return sim.Summary{}, err
	}
	costs, err := sim.CostsOf(p, b.c, pl)
	if err != nil {
		return sim.Summary{}, err
	}
	_, sum, err := sim.Run(program, costs, sim.Options{})
	return sum, err
}

// behind is the layers of these names.
func (b *bench) behind(names []string) ([]int, error) {
	var last []int
	for _, name := range names {
		l := b.m.Index(name)
		if l < 0 {
			return nil, fmt.Errorf("%s has no layer %q", b.m.Name, name)
		}
		last = append(last, l)
	}
	return append(last, len(b.m.Layers)-1), nil
}

// stages is a 1F1B plan whose stages end at these layers, each replicated, on devices in
// order. Replicas split micro-batches.
func (b *bench) stages(last, replicas []int, microBatch, microBatches int) (*plan.Plan, error) {
	pl := &plan.Plan{
		Version: plan.Version, Model: b.m.Name, ModelID: b.m.ID(), Cluster: b.c.Name, Replication: "split",
		MicroBatch: microBatch, MicroBatches: microBatches, Schedule: "1f1b", Weights: "sync", Planner: "given",
	}
	first, device := 0, 0
	for i, n := range replicas {
		st := plan.Stage{FirstLayer: first, LastLayer: last[i], Warmup: min(len(replicas)-i, microBatches)}
		for range n {
			st.Devices = append(st.Devices, device)
			device++
		}
		pl.Stages = append(pl.Stages, st)
		first = last[i] + 1
	}
	if device > len(b.c.Devices) {
		return nil, fmt.Errorf("the plan wants %d devices; cluster %s has %d", device, b.c.Name, len(b.c.Devices))
	}
	return pl, nil
}

// straight is the pipeline of n stages whose slowest is fastest.
func (b *bench) straight(n, microBatch, microBatches int) (*plan.Plan, error) {
	p, err := b.profile(microBatch)
	if err != nil {
		return nil, err
	}
	return split.Pipeline(p, b.c.Unlimited(), split.Limits{Stages: n, MicroBatch: microBatch,
		MicroBatches: microBatches, Depths: depths(n, microBatches)})
}

// depths is K_i = S - i (DAPPLE's P_A, BaPipe's SNO).
func depths(stages, microBatches int) []int {
	var k []int
	for i := range stages {
		k = append(k, min(stages-i, microBatches))
	}
	return k
}

func firsts(n int) []int {
	d := make([]int, n)
	for i := range d {
		d[i] = i
	}
	return d
}

// waitFree is a step of data parallelism among the first n devices, a micro-batch of size
// samples each, with each layer's gradients reduced as soon as they are there, last layer
// first, while the backward pass goes on (wait-free back-propagation, PipeDream §4). Layers
// queue for the one link. compute is what one device computes.
func (b *bench) waitFree(n, size int) (step, compute float64, err error) {
	p, costs, err := b.costs(size)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range costs {
		compute += c.ForwardS
	}
	link := 0.0
	for l := len(costs) - 1; l >= 0; l-- {
		compute += costs[l].BackwardS
		if w := p.Layers[l].ParameterBytes; w > 0 {
			link = max(link, compute) + b.allReduceS(firsts(n), w)
		}
	}
	return max(compute, link), compute, nil
}

// parameterBytes of the whole model.
func parameterBytes(p *profile.Profile) int64 {
	var n int64
	for _, l := range p.Layers {
		n += l.ParameterBytes
	}
	return n
}

// as gives a plan another schedule, with that one's depths.
func as(pl *plan.Plan, order string) error {
	f, err := family.Lookup(order)
	if err != nil {
		return err
	}
	pl.Schedule = order
	if f.Warmup == nil {
		return nil
	}
	for i, k := range f.Warmup(len(pl.Stages), pl.MicroBatches) {
		pl.Stages[i].Warmup = min(k, pl.MicroBatches)
	}
	return nil
}
