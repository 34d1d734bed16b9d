package published

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/shape"
)

func init() {
	table.Register("advice", "Published layouts on GPUs beside those that a sweep chooses: predicted seconds of a step",
		table.Uses{Others: true}, reproduceAdvice)
}

// Advice has a published layout, and the layout that a sweep chooses for the same model, devices, batch and software.
type Advice struct {
	Result                   // of the published layout
	Chosen *shape.Prediction // nil means that nothing fits
	// Efficiency is the rate of the chosen layout's matrix products, as a fraction of the highest rate. It is computed
	// for matrices with the rows of one micro-batch.
	Efficiency  float64
	MemoryBytes int64 // memory of a device
}

// asked holds the input of a sweep for one published run: everything except the run's layout.
type asked struct {
	source, preset     string
	model              Model
	devices, batch     int
	precision          string
	async              bool
	gradients, weights int // bytes of each number in a message
	positions          int
}

func (r *Result) asked() asked {
	s := r.Prediction.Shape
	return asked{r.Source, r.Preset, r.Model, s.Devices(), s.Batch, s.Precision, s.AsyncTensor, s.GradientBytes,
		s.WeightBytes, r.Model.Positions}
}

// software holds the settings that the measured programs support, besides replicas, stages, groups, chunks and
// micro-batches.
type software struct {
	recomputes []string
	sequence   []bool               // values of SequenceParallel, if there is tensor parallelism
	shards     func(p int) []string // kinds of sharding, by number of stages
	plain      bool                 // only one stage, and no tensor parallelism
	chunks     []int                // numbers of chunks; nil means all
	zeroBubble bool
}

// expresses returns the settings that the software of a source supports. The software is Megatron-LM of 2021 or of
// 2022, Megatron-Core, Qi et al.'s, torchtitan, PyTorch's FSDP, nanotron or llm.c.
func expresses(source string) software {
	whole := func(int) []string { return []string{"none"} }
	states := func(int) []string { return []string{"zero1"} }
	all := []string{"none", "selective", "full"}
	switch source {
	case "megatron_sc21_table1_weak_scaling", "megatron_sc21_table2_ptd_vs_zero3", "megatron_sc21_text_facts":
		return software{recomputes: []string{"none", "full"}, sequence: []bool{false}, shards: whole}
	case "recompute_paper_table5_iteration_time":
		return software{recomputes: all, sequence: []bool{false, true}, shards: whole}
	case "megatron_core_h100_scaling":
		return software{recomputes: all, sequence: []bool{true}, shards: states}
	case "megatron_bridge_dense_llama":
		return software{recomputes: all, sequence: []bool{true}, shards: func(p int) []string {
			if p > 1 { // a pipeline would gather fully sharded parameters for a whole step
				return []string{"zero1"}
			}
			return []string{"zero1", "zero3"}
		}}
	case "zero_bubble_throughput":
		return software{recomputes: all, sequence: []bool{false}, shards: whole, zeroBubble: true}
	case "torchtitan_throughput":
		return software{recomputes: []string{"none", "alternate", "operators", "full"}, sequence: []bool{true},
			chunks: []int{1, 2}, shards: func(p int) []string {
				if p > 1 {
					return []string{"zero2"}
				}
				return []string{"zero2", "zero3"}
			}}
	case "nanotron_llama1b_h100":
		return software{recomputes: []string{"none"}, sequence: []bool{true}, shards: states, chunks: []int{1}}
	case "llm_foundry_mpt":
		return software{recomputes: []string{"none", "full"}, plain: true,
			shards: func(int) []string { return []string{"zero2", "zero3"} }}
	}
	return software{recomputes: []string{"none"}, plain: true, shards: states} // llm.c
}

// space returns the sweeps that are tried for a question.
func (b *lab) space(q asked, base shape.Shape, c *cluster.Cluster) ([]shape.Sweep, error) {
	m, err := b.model(q.model)
	if err != nil {
		return nil, err
	}
	can := expresses(q.source)
	base = shape.Shape{Batch: base.Batch, Precision: base.Precision, States: base.States, Behind: base.Behind,
		GradientBytes: base.GradientBytes, WeightBytes: base.WeightBytes, AsyncTensor: base.AsyncTensor,
		WeightsAhead: base.WeightsAhead}
	w := shape.Sweep{Base: base, Recomputes: can.recomputes, Chunks: can.chunks}
	if can.plain {
		w.Stages, w.Tensors = []int{1}, []int{1}
	}
	var out []shape.Sweep
	for _, one := range w.Wide(m, c) {
		p := one.Stages[0]
		one.Shards = can.shards(p)
		for _, t := range one.Tensors {
			if q.devices%(p*t) != 0 {
				continue
			}
			one.Tensors, one.Replicas = []int{t}, []int{q.devices / (p * t)}
			if t == 1 {
				out = append(out, one)
				out = append(out, can.halves(one, p, q.devices)...)
				continue
			}
			for _, sequence := range can.sequence {
				one.Base.SequenceParallel = sequence
				out = append(out, one)
			}
			one.Base.SequenceParallel = false
		}
	}
	return out, nil
}

// halves returns sweeps of Qi et al.'s three schedules. There are none unless the pipeline has a stage for each device,
// as in their runs. Two of the schedules order computations by their times: one within the memory of 1F1B, and one
// within twice that memory. The third places two stages on each device, in a V.
func (can software) halves(w shape.Sweep, p, devices int) (out []shape.Sweep) {
	if !can.zeroBubble || p == 1 || p != devices {
		return nil
	}
	w.Base.NoFlush, w.Chunks, w.Recomputes = true, []int{1}, []string{"none"}
	for _, room := range []int{p, 2 * p} {
		w.Base.Schedule, w.Base.Room = "zb-auto", room
		out = append(out, w)
	}
	w.Base.Schedule, w.Base.Room, w.Chunks = "zb-v", 0, []int{2}
	return append(out, w)
}

// advise returns an Advice for each judged run. Runs with the same input for the sweep share the chosen layout, which
// must fit in a device's memory. If a published layout ran but needs more than that memory by our count, our count is
// the limit instead.
func (b *lab) advise(ctx context.Context, all []Result) ([]Advice, error) {
	most := map[asked]int64{}
	for i := range all {
		if r := &all[i]; r.Prediction != nil && !r.Calibration {
			most[r.asked()] = max(most[r.asked()], slices.Max(r.Prediction.MemoryBytes))
		}
	}
	known := map[asked]*Advice{}
	var out []Advice
	for i := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := &all[i]
		if r.Prediction == nil || r.Calibration {
			continue
		}
		q := r.asked()
		if known[q] == nil {
			a, err := b.choose(ctx, q, r, most[q])
			if err != nil {
				return nil, err
			}
			known[q] = a
		}
		a := *known[q]
		a.Result = *r
		out = append(out, a)
	}
	return out, nil
}

// choose returns the fastest layout that fits.
func (b *lab) choose(ctx context.Context, q asked, r *Result, counted int64) (*Advice, error) {
	c, err := b.preset(ctx, q.preset)
	if err != nil {
		return nil, err
	}
	m, err := b.model(q.model)
	if err != nil {
		return nil, err
	}
	sweeps, err := b.space(q, r.Shape, c)
	if err != nil {
		return nil, err
	}
	c = c.Copied()
	d := c.DeviceTypes[c.Devices[0]]
	a := &Advice{MemoryBytes: d.MemoryBytes}
	d.MemoryBytes = max(d.MemoryBytes, counted)
	c.DeviceTypes[c.Devices[0]] = d
	a.Chosen, err = shape.Best(m, c, sweeps...)
	if errors.Is(err, shape.ErrNothing) {
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reproduce: advice: %s: %w", r.ID, err)
	}
	kind := cluster.RateMatmul
	if q.precision == "fp8" {
		kind = cluster.RateFP8
	}
	rate := d.Kernels.Rate(kind)
	a.Efficiency = rate.At(0, float64(a.Chosen.Shape.MicroBatch*q.positions)) / rate.At(0, 0)
	return a, nil
}

func reproduceAdvice(ctx context.Context, _ table.Options, t *table.Table) error {
	b, all, err := predict(ctx)
	if err != nil {
		return err
	}
	advice, err := b.advise(ctx, all)
	if err != nil {
		return err
	}
	advised(advice, t)
	return nil
}

// advised adds a row for each judged run: the published layout and the chosen one, both predicted.
func advised(all []Advice, t *table.Table) {
	t.Source = "data/README.md of this package; \"paper\" is the published layout as predicted, \"ours\" the chosen one"
	least, same := 1.0, 0
	for i := range all {
		a := &all[i]
		published := a.Prediction.Shape.String()
		if a.Chosen == nil {
			t.Says(a.ID+", "+published+": a layout fits", false)
			continue
		}
		chosen := a.Chosen.Shape.String()
		if least = min(least, a.Efficiency); chosen == published {
			chosen = "the same"
			same++
		}
		row := t.Bound(fmt.Sprintf("%s, %s (measured %.4g s) -> %s", a.ID, published, a.StepS, chosen), "at most",
			a.Prediction.StepS, a.Chosen.StepS)
		row.Paper, row.Ours = fmt.Sprintf("%.4g s", a.Prediction.StepS), fmt.Sprintf("%.4g s", a.Chosen.StepS)
		row.Difference = fmt.Sprintf("%+.1f %%", 100*(a.Chosen.StepS/a.Prediction.StepS-1))
		if counted := slices.Max(a.Prediction.MemoryBytes); counted > a.MemoryBytes {
			t.Notes = append(t.Notes, fmt.Sprintf("%s ran where our count has it hold %.1f GB of %.1f; its rival may too", a.ID,
				float64(counted)/1e9, float64(a.MemoryBytes)/1e9))
		}
	}
	t.Notes = append(t.Notes,
		fmt.Sprintf("%d layouts are published, of which %d are chosen too", len(all), same),
		fmt.Sprintf("with rows of one micro-batch the chosen layouts' products reach %.2f of their rate at least", least))
}
