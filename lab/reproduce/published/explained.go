package published

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/shape"
)

// farOff is the relative error of a step above which a row has ablations. An ablation explains the row if it reduces
// the error to at most table.Near.
const farOff = 0.2

// explained counts rows by the ablation that explains them. The key "" counts the rows that no ablation explains.
type explained map[string]int

// add counts a row, and writes into the row what explains it.
func (e explained) add(row *table.Row, why string) {
	e[why]++
	if row.Why = "no assumption explains it"; why != "" {
		row.Why = "explained if " + why
	}
}

func (e explained) total() (n int) {
	for _, of := range e {
		n += of
	}
	return n
}

// notes returns a line for each ablation that explains rows, and one for the rows that no ablation explains.
func (e explained) notes(near string) (out []string) {
	names := slices.SortedFunc(maps.Keys(e), func(a, b string) int {
		return cmp.Or(cmp.Compare(e[b], e[a]), strings.Compare(a, b))
	})
	for _, name := range names {
		if name != "" {
			out = append(out, fmt.Sprintf("%d of them would be %s if %s", e[name], near, name))
		}
	}
	if e[""] > 0 {
		out = append(out, fmt.Sprintf("%d of them no assumption explains", e[""]))
	}
	return out
}

// nearest returns the row's ablation with the least error; "" if the row has none, or if this error is above `near`.
func nearest(row *table.Row, near float64, off func(value float64) float64) string {
	why := ""
	for _, a := range row.Ablations {
		if e := off(a.Value); e <= near {
			why, near = a.Assumption, math.Nextafter(e, -1)
		}
	}
	return why
}

// ablation is an alternative to an assumption about a run: something that its software or machine does, or may do.
type ablation struct {
	what   string
	of     func(e *Entry) bool // whether the alternative is possible in this run
	change func(s *shape.Shape, c *cluster.Cluster)
}

// always says that an ablation is possible in every run.
func always(*Entry) bool { return true }

// byNanotron says whether a run is nanotron's. Its source does not print what joins the nodes.
func byNanotron(e *Entry) bool { return e.Source == "nanotron_llama1b_h100" }

// ablations lists what is tried for a step that is far off.
var ablations = []ablation{
	// If a device is short of memory, PyTorch frees its cache, and first waits for all streams (CUDA semantics, memory
	// management). Then no collective runs beside computations.
	{"no collective hides behind computations", always,
		func(_ *shape.Shape, c *cluster.Cluster) { edit(c, func(k *cluster.Kernels) { k.Overlap = 0 }) }},
	{"all collectives hide behind computations", always,
		func(_ *shape.Shape, c *cluster.Cluster) { edit(c, func(k *cluster.Kernels) { k.Overlap = 1 }) }},
	{"links between nodes are half as fast", always,
		func(_ *shape.Shape, c *cluster.Cluster) {
			l := &c.Levels[len(c.Levels)-1]
			l.BandwidthBytesPerSecond /= 2
			l.CollectiveBandwidthBytesPerSecond /= 2
		}},
	// NCCL falls back to TCP without a plugin for the network. It uses at least two rings, each with one connection. On
	// Amazon EC2 a connection has at most 10 Gb/s (instance network bandwidth). The runs' scripts name a file system of
	// Amazon EC2 (bench_cluster/template/base_bench.slurm). Rows of data/ that only give context confirm this: if a
	// pipeline spans two nodes, a micro-batch takes longer by the time of two messages of 67 MB at that rate.
	{"nodes are joined by TCP, each of two rings by one connection of 10 Gb/s", byNanotron,
		func(_ *shape.Shape, c *cluster.Cluster) {
			l := &c.Levels[len(c.Levels)-1]
			l.BandwidthBytesPerSecond, l.CollectiveBandwidthBytesPerSecond = 10e9/8, 2*10e9/8
		}},
	// LLM-foundry's setting "attn_impl: torch" selects PyTorch's attention without its fused kernels.
	{"attention is not one kernel", always,
		func(_ *shape.Shape, c *cluster.Cluster) { edit(c, func(k *cluster.Kernels) { k.Flash = false }) }},
	// Every program except nanotron can be set to compute blocks again; nanotron's Llama recomputes nothing. The
	// sources print how the program was set. So if this ablation explains a row, the program may have been set
	// differently.
	{"blocks are computed again", func(e *Entry) bool { return !byNanotron(e) },
		func(s *shape.Shape, _ *cluster.Cluster) { s.Recompute = "full" }},
	// torchtitan, docs/float8.md: enable_fsdp_float8_all_gather. Some of torchtitan's sources do not print the command.
	{"weights are gathered in fp8", func(e *Entry) bool {
		return e.Source == "torchtitan_throughput" && e.Shape.Precision == "fp8" && !strings.HasPrefix(e.ID, "tt-async")
	}, func(s *shape.Shape, _ *cluster.Cluster) { s.WeightBytes = 1 }},
	// PyTorch's DistributedDataParallel sums gradients after every micro-batch, except inside no_sync().
	{"gradients are summed after every micro-batch", func(e *Entry) bool { return e.Shape.Shard == "zero1" },
		func(s *shape.Shape, _ *cluster.Cluster) { s.Shard = "zero2" }},
	// Jiang et al., MegaScale, NSDI 2024: some hosts take about 10 % longer for the same computations.
	{"the slowest machine takes a tenth longer", always,
		func(_ *shape.Shape, c *cluster.Cluster) {
			d := c.DeviceTypes[c.Devices[0]]
			d.MemoryBandwidthBytesPerSecond /= 1.1
			d.PeakFLOPS /= 1.1
			peaks := maps.Clone(d.Peaks)
			for name := range peaks {
				peaks[name] /= 1.1
			}
			d.Peaks = peaks
			c.DeviceTypes[c.Devices[0]] = d
		}},
}

// ablate adds an ablation to the row for each alternative assumption that changes the run's step. It returns the
// assumption that explains the row.
func (b *lab) ablate(ctx context.Context, r *Result, row *table.Row) (why string, err error) {
	c, err := b.preset(ctx, r.Preset)
	if err != nil {
		return "", err
	}
	m, err := b.model(r.Model)
	if err != nil {
		return "", err
	}
	for _, a := range ablations {
		if !a.of(&r.Entry) {
			continue
		}
		s, other := r.Prediction.Shape, c.Copied()
		a.change(&s, other)
		p, err := shape.Predict(m, other, s)
		if err != nil || p.StepS == r.Prediction.StepS {
			continue // the assumption does not fit the shape, or does not change the step
		}
		row.Ablate(a.what, p.StepS, "%.4g s")
	}
	return nearest(row, table.Near, func(step float64) float64 { return off(step, r.StepS) }), nil
}

// edit changes the kernels of a copied cluster's device type.
func edit(c *cluster.Cluster, change func(k *cluster.Kernels)) {
	change(c.DeviceTypes[c.Devices[0]].Kernels)
}
