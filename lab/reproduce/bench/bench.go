// Package bench computes times and memory of workloads on described devices, for the papers' experiments.
//
// Input: a workload and a preset cluster, or a published profile. Output: costs, steps of data parallelism, cuts of
// pipelines, simulated steps and memory. Errors: unknown workloads, clusters and layers, and plans with more devices
// than the cluster has.
package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
)

// Bench is a workload on a cluster, with costs for any micro-batch size.
type Bench struct {
	workload string
	M        *model.Model
	C        *cluster.Cluster
	A        profile.Analysis
	Given    *profile.Profile // published profile, if any
	// saving multiplies the bytes that described layers save for their backward; 0 means 1.
	saving float64
	// collectives is the fraction of the links' bandwidth that all-reduces reach; 0 means all of it.
	collectives float64
	// bySize selects the kinds of layers with costs by kernels. The costs of other kinds use the device types in
	// `plain`. If bySize is nil, all kinds use C's device types.
	bySize func(kind string) bool
	plain  map[string]cluster.DeviceType
}

// Reaching returns the bench with all-reduces at a fraction of the wires' rate; 0 means all of it.
func (b *Bench) Reaching(part float64) *Bench {
	other := *b
	other.collectives = part
	return &other
}

// MessagesAt returns the bench with messages between servers at a fraction of the wires' rate. All-reduces keep the
// whole rate.
func (b *Bench) MessagesAt(part float64) *Bench {
	other, c := *b, *b.C
	c.Levels = slices.Clone(c.Levels)
	l := &c.Levels[len(c.Levels)-1]
	if l.CollectiveBandwidthBytesPerSecond == 0 {
		l.CollectiveBandwidthBytesPerSecond = l.BandwidthBytesPerSecond
	}
	l.BandwidthBytesPerSecond *= part
	other.C = &c
	return &other
}

// OneWay returns the bench with links that carry messages one way at a time. PipeDream's formula 2 a / B assumes such
// links: `a` bytes of activations and `a` bytes of gradients share the bandwidth B.
func (b *Bench) OneWay() *Bench {
	other, c := *b, *b.C
	c.Levels = slices.Clone(c.Levels)
	for i := range c.Levels {
		c.Levels[i].FullDuplex = false
	}
	other.C = &c
	return &other
}

// OwnPorts returns the bench without shared ports of servers.
func (b *Bench) OwnPorts() *Bench {
	other, c := *b, *b.C
	c.Levels = slices.Clone(c.Levels)
	for i := range c.Levels {
		c.Levels[i].Uplinks, c.Levels[i].Shared = false, false
	}
	other.C = &c
	return &other
}

// described maps the papers' device types to similar ones in cluster/types.yaml. The Titan X is missing there, so the
// GTX 1080 Ti replaces it.
var described = map[string]string{"v100": "v100", "1080ti": "gtx-1080ti", "titan-x": "gtx-1080ti"}

// BySize returns the bench on devices with the kernel costs of cluster/types.yaml. These are the times of launches, and
// rates that are lower for small widths and few rows. Published profiles do not change.
func (b *Bench) BySize() (*Bench, error) {
	other, c := *b, *b.C
	c.DeviceTypes = maps.Clone(c.DeviceTypes)
	for name, d := range c.DeviceTypes {
		like, ok := described[name]
		if !ok {
			return nil, fmt.Errorf("no type of cluster/types.yaml stands for device type %s", name)
		}
		known, err := cluster.Parse(strings.NewReader("name: known\ndevice_types: {known: {like: " + like + "}}\n" +
			"device: known\nlevels: [{name: server, size: 2, bandwidth: 1GB/s}]\n"))
		if err != nil {
			return nil, err
		}
		d.Kernels = known.DeviceTypes["known"].Kernels
		c.DeviceTypes[name] = d
	}
	other.C = &c
	return &other, nil
}

// BySizeFor returns the bench with kernel costs only for some kinds of layers.
func (b *Bench) BySizeFor(kind func(string) bool) (*Bench, error) {
	other, err := b.BySize()
	if err == nil {
		other.bySize, other.plain = kind, b.C.DeviceTypes
	}
	return other, err
}

// Convolution says whether layers of a kind convolve. Such layers multiply large matrices, with a row for each position
// of their output. They can also be computed by algorithms other than matrix multiplication.
func Convolution(kind string) bool { return kind == "conv2d" || kind == "amoeba_cell" }

// Recurrent says whether layers of a kind compute step by step. Their matrices then have only one row for each sample
// of a micro-batch.
func Recurrent(kind string) bool { return kind == "lstm" }

// others replaces the costs of the layers whose kind bySize does not select. The new costs use the device types in
// `plain`.
func (b *Bench) others(p *profile.Profile, a profile.Analysis) error {
	own, err := profile.Analyze(b.M, b.plain, a)
	if err != nil {
		return err
	}
	for i, l := range b.M.Layers {
		if !b.bySize(l.Kind) {
			p.Layers[i].Costs = own.Layers[i].Costs
		}
	}
	return nil
}

// AllReduceS returns how many seconds an all-reduce among devices takes.
func (b *Bench) AllReduceS(devices []int, bytes int64) float64 {
	t := b.C.AllReduceS(devices, bytes)
	if b.collectives > 0 {
		t /= b.collectives
	}
	return t
}

func New(o table.Options, workload string, settings map[string]any, preset string) (*Bench, error) {
	m, err := model.Build(workload, settings)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Preset(preset)
	if err != nil {
		return nil, err
	}
	b := &Bench{workload: workload, M: m, C: c, A: profile.Analysis{Optimizer: "momentum", States: 1}}
	if o.Profiles != "" && settings == nil {
		if b.Given, err = published(o.Profiles, preset, workload); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Profile returns the published profile if there is one, and otherwise costs for these micro-batch sizes.
func (b *Bench) Profile(sizes ...int) (*profile.Profile, error) {
	if b.Given != nil {
		return b.Given, nil
	}
	a := b.A
	a.Sizes = slices.Clone(sizes)
	slices.Sort(a.Sizes)
	a.Sizes = slices.Compact(a.Sizes)
	p, err := profile.Analyze(b.M, b.C.DeviceTypes, a)
	if err == nil && b.bySize != nil {
		err = b.others(p, a)
	}
	if err != nil || b.saving == 0 {
		return p, err
	}
	for _, l := range p.Layers {
		for i := range l.Costs {
			l.Costs[i].SavedBytes = int64(b.saving * float64(l.Costs[i].SavedBytes))
		}
	}
	return p, nil
}

// Saving returns the bench with layers that save more for their backward. `times` is the factor on the described bytes.
func (b *Bench) Saving(times float64) *Bench {
	other := *b
	other.saving = times
	return &other
}

// Costs returns the costs of a whole micro-batch on the cluster's first device.
func (b *Bench) Costs(size int) (*profile.Profile, []profile.Cost, error) {
	p, err := b.Profile(size)
	if err != nil {
		return nil, nil, err
	}
	costs, _, err := p.At(b.C.Devices[0], size)
	return p, costs, err
}

// ComputeS returns the sum of the forward and backward times of all layers, in seconds.
func ComputeS(costs []profile.Cost) float64 {
	sum := 0.0
	for _, c := range costs {
		sum += c.ForwardS + c.BackwardS
	}
	return sum
}

// Run simulates three steps of a plan. The summary holds the time of a step in the steady state, and the memory of each
// device.
func (b *Bench) Run(pl *plan.Plan) (sim.Summary, error) {
	sizes := []int{1, pl.MicroBatch}
	for _, s := range pl.Stages {
		n := len(s.Devices)
		sizes = append(sizes, (pl.MicroBatch+n-1)/n)
	}
	p, err := b.Profile(sizes...)
	if err != nil {
		return sim.Summary{}, err
	}
	pl.ModelID = p.ModelID
	program, err := programs.Build(pl, p.TiedLayers(), false, 3)
	if err != nil {
		return sim.Summary{}, err
	}
	costs, err := sim.CostsOf(p, b.C, pl)
	if err != nil {
		return sim.Summary{}, err
	}
	_, sum, err := sim.Run(program, costs, sim.Options{})
	return sum, err
}

// Behind returns the indices of the named layers, and then the index of the model's last layer.
func (b *Bench) Behind(names []string) ([]int, error) {
	var last []int
	for _, name := range names {
		l := b.M.Index(name)
		if l < 0 {
			return nil, fmt.Errorf("%s has no layer %q", b.M.Name, name)
		}
		last = append(last, l)
	}
	return append(last, len(b.M.Layers)-1), nil
}

// Stages returns a 1F1B plan whose stages end at the layers in `last`, with the given numbers of replicas. Devices are
// assigned in order, and replicas split micro-batches.
func (b *Bench) Stages(last, replicas []int, microBatch, microBatches int) (*plan.Plan, error) {
	pl := &plan.Plan{
		Version: plan.Version, Model: b.M.Name, ModelID: b.M.ID(), Cluster: b.C.Name, Replication: "split",
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
	if device > len(b.C.Devices) {
		return nil, fmt.Errorf("the plan wants %d devices; cluster %s has %d", device, b.C.Name, len(b.C.Devices))
	}
	return pl, nil
}

// Straight returns the pipeline of n stages without replicas in which the slowest stage is as fast as possible. It does
// not limit memory.
func (b *Bench) Straight(n, microBatch, microBatches int) (*plan.Plan, error) {
	p, err := b.Profile(microBatch)
	if err != nil {
		return nil, err
	}
	return split.Pipeline(p, b.C.Unlimited(), split.Limits{Stages: n, MicroBatch: microBatch,
		MicroBatches: microBatches, Depths: Depths(n, microBatches)})
}

// Depths returns the warm-up of each stage. For stage i of S it is S - i (DAPPLE's P_A, BaPipe's SNO), or microBatches
// if that is less.
func Depths(stages, microBatches int) []int {
	var k []int
	for i := range stages {
		k = append(k, min(stages-i, microBatches))
	}
	return k
}

func Firsts(n int) []int {
	d := make([]int, n)
	for i := range d {
		d[i] = i
	}
	return d
}

// WaitFree returns the time of a data-parallel step with wait-free back-propagation (PipeDream §4). Each of the first n
// devices has a micro-batch of `size` samples. During the backward, each layer's gradients are reduced as soon as they
// are ready, last layer first, and layers queue for the single link. `compute` is the compute time of one device.
func (b *Bench) WaitFree(n, size int) (step, compute float64, err error) {
	p, costs, err := b.Costs(size)
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
			link = max(link, compute) + b.AllReduceS(Firsts(n), w)
		}
	}
	return max(compute, link), compute, nil
}

// ParameterBytes returns the bytes of the whole model's parameters.
func ParameterBytes(p *profile.Profile) int64 {
	var n int64
	for _, l := range p.Layers {
		n += l.ParameterBytes
	}
	return n
}

// As gives a plan another schedule, with that schedule's warm-up depths. If the schedule has no depths of its own, the
// plan keeps its depths.
func As(pl *plan.Plan, order string) error {
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
