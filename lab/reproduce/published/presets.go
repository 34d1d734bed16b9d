package published

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/tune/calibrate"
	"github.com/millrace-ml/millrace/tune/shape"
)

// presetFiles holds the presets before calibration. Each preset describes a device by the numbers of its data sheet,
// and says how a family of software computes on it.
//
//go:embed presets/*.yaml
var presetFiles embed.FS

// fitted lists the numbers of a preset that calibration rows may change.
var fitted = []string{"matmul.limit", "matmul_fp8.limit", "matmul.half_width", "matmul.half_rows", "attention.limit",
	"memory.limit", "layer", "overlap"}

// lender maps a preset to the preset whose calibrated numbers are the start of its own calibration. In most of these
// pairs, both presets are for the same software. nanotron has only one row, so it starts from the numbers of eager
// PyTorch, which calls the same library on the same device.
var lender = map[string]string{"titan-h100-eager": "titan-h100", "titan-h200": "titan-h100",
	"nanotron-h100": "mpt-h100-80", ahead: "zero-bubble-a100"}

// described returns a preset as its file describes it, before calibration.
func described(name string) (*cluster.Cluster, error) {
	text, err := presetFiles.ReadFile("presets/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reproduce: published: %w", err)
	}
	c, err := cluster.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reproduce: published: preset %s: %w", name, err)
	}
	return c, nil
}

// lab holds the presets and models of one reproduction.
type lab struct {
	entries []Entry
	presets map[string]*cluster.Cluster
	models  map[Model]*model.Model
	fits    map[string]*calibrate.Fit
	ablated map[string]float64 // steps of runs under other assumptions
}

// model returns a network. It builds each network once.
func (b *lab) model(m Model) (*model.Model, error) {
	if built, ok := b.models[m]; ok {
		return built, nil
	}
	built, err := m.Build()
	if err != nil {
		return nil, fmt.Errorf("reproduce: published: %w", err)
	}
	b.models[m] = built
	return built, nil
}

// preset returns a device with a software family, fitted to its calibration rows.
func (b *lab) preset(ctx context.Context, name string) (*cluster.Cluster, error) {
	if c, ok := b.presets[name]; ok {
		return c, nil
	}
	c, err := described(name)
	if err != nil {
		return nil, err
	}
	if from, ok := lender[name]; ok {
		if _, err := b.preset(ctx, from); err != nil {
			return nil, err
		}
		if c, err = calibrate.Lent(c, b.fits[from]); err != nil {
			return nil, err
		}
	}
	seen, err := b.observations(name, c)
	if err != nil {
		return nil, err
	}
	if len(seen) > 0 {
		fit, err := calibrate.Run(ctx, calibrate.Request{Cluster: c, Observations: seen,
			Names: fitted})
		if err != nil {
			return nil, fmt.Errorf("reproduce: published: preset %s: %w", name, err)
		}
		c, b.fits[name] = fit.Cluster, fit
	}
	b.presets[name] = c
	return c, nil
}

// observations returns the measurements to which a preset is calibrated. These are its calibration rows, and the times
// of a layer and of stages that two papers print.
func (b *lab) observations(name string, c *cluster.Cluster) ([]calibrate.Observation, error) {
	var out []calibrate.Observation
	for _, e := range b.entries {
		if !e.Calibration || e.Preset != name || e.Skip != "" {
			continue
		}
		m, err := b.model(e.Model)
		if err != nil {
			return nil, err
		}
		s, err := b.settled(&e, c)
		if err != nil {
			return nil, err
		}
		out = append(out, calibrate.Observation{Name: e.ID, Measured: e.StepS,
			Predict: func(c *cluster.Cluster) (float64, error) {
				p, err := shape.Predict(m, c, s)
				if err != nil {
					return 0, err
				}
				return p.StepS, nil
			}})
	}
	var more []calibrate.Observation
	var err error
	switch name {
	case "megatron-a100":
		more, err = b.layerTimes()
	case "zero-bubble-a100":
		more, err = b.stageTimes()
	}
	return append(out, more...), err
}

// part returns a function that computes the time of one pass through some blocks of a model.
func (b *lab) part(of Model, blocks, samples, tensor int, sequence, selective bool,
	pass func(k kernels.Cost) float64) func(c *cluster.Cluster) (float64, error) {
	return func(c *cluster.Cluster) (float64, error) {
		m, err := b.model(of)
		if err != nil {
			return 0, err
		}
		d := shape.Shape{Tensor: tensor, SequenceParallel: sequence}.Device(c)
		sum := 0.0
		for _, layer := range []string{"block0.attention", "block0.mlp"} {
			k, err := kernels.Of(m, m.Index(layer), samples, c.Devices[0], d, kernels.Options{Precision: "f16",
				Selective: selective})
			if err != nil {
				return 0, fmt.Errorf("reproduce: published: %w", err)
			}
			sum += float64(blocks) * pass(k)
		}
		return sum, nil
	}
}

// layerTimes returns Korthikanti et al.'s times of one layer of their 22B model (Table 4).
func (b *lab) layerTimes() ([]calibrate.Observation, error) {
	all, err := rows("recompute_paper_table4_layer_time")
	if err != nil {
		return nil, err
	}
	m := Model{Layers: 48, Hidden: 6144, Heads: 64, Positions: 2048, Vocabulary: 51200, Tied: true, Dropout: true}
	var out []calibrate.Observation
	for _, r := range all {
		sequence, again := r["sequence_parallel"] == "yes", r["recompute"]
		backward := func(k kernels.Cost) float64 {
			if again == "full" {
				return k.ForwardS + k.InputS + k.WeightS
			}
			return k.InputS + k.WeightS
		}
		out = append(out,
			calibrate.Observation{Name: r["id"] + " forward", Measured: r.number("forward_ms") / 1e3,
				Predict: b.part(m, 1, 4, 8, sequence, again == "selective", func(k kernels.Cost) float64 { return k.ForwardS })},
			calibrate.Observation{Name: r["id"] + " backward", Measured: r.number("backward_ms") / 1e3,
				Predict: b.part(m, 1, 4, 8, sequence, again == "selective", backward)})
	}
	return out, nil
}

// stageTimes returns the times of stages that Qi et al. measured for their models (Table 9). With S stages and L blocks
// in the model, such a stage has (L + 2) / S blocks.
func (b *lab) stageTimes() ([]calibrate.Observation, error) {
	all, err := rows("zero_bubble_table9_stage_times")
	if err != nil {
		return nil, err
	}
	var out []calibrate.Observation
	for _, r := range all {
		at := slices.IndexFunc(b.entries, func(e Entry) bool {
			return strings.HasPrefix(e.ID, "zb-T4-"+r["model"]+"-")
		})
		if at < 0 {
			return nil, fmt.Errorf("reproduce: published: no run of model %s", r["model"])
		}
		m := b.entries[at].Model
		blocks := (m.Layers + 2) / r.count("pp")
		for column, pass := range map[string]func(k kernels.Cost) float64{
			"t_forward_ms":         func(k kernels.Cost) float64 { return k.ForwardS },
			"t_backward_input_ms":  func(k kernels.Cost) float64 { return k.InputS },
			"t_backward_weight_ms": func(k kernels.Cost) float64 { return k.WeightS },
		} {
			out = append(out, calibrate.Observation{Name: r["id"] + " " + column, Group: r["model"],
				Measured: r.number(column) / 1e3, Predict: b.part(m, blocks, r.count("micro_batch"), 1, false, false, pass)})
		}
	}
	slices.SortFunc(out, func(a, b calibrate.Observation) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// settled returns an entry's shape. If its source leaves settings open, settled takes the fastest settings that fit.
func (b *lab) settled(e *Entry, c *cluster.Cluster) (shape.Shape, error) {
	if len(e.Open) == 0 {
		return e.Shape, nil
	}
	m, err := b.model(e.Model)
	if err != nil {
		return e.Shape, err
	}
	open := shape.Sweep{Base: e.Shape, Stages: []int{e.Shape.Stages}, Tensors: []int{e.Shape.Tensor},
		Replicas: []int{e.Shape.Replicas}, MicroBatches: []int{1, 2, 4}, Recomputes: []string{"none", "selective"}}
	best, err := shape.Best(m, c, open.Wide(m, c)...)
	if err != nil {
		return e.Shape, fmt.Errorf("reproduce: published: %s: %w", e.ID, err)
	}
	return best.Shape, nil
}
