package published

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/shape"
)

func init() {
	table.Register("zero-bubble", "Zero Bubble Pipeline Parallelism: gains over 1F1B and over interleaved 1F1B",
		table.Uses{Others: true}, reproduceGains)
}

const zeroBubbles = "zero_bubble_throughput"

// gain compares two runs of the same model, devices and batch. `measured` and `predicted` say by which fraction `of` is
// faster than `over`. The printed rates are rounded, so the measured gain is only known to lie between `least` and
// `most`.
type gain struct {
	of, over            *Result
	measured, predicted float64
	least, most         float64
}

// miss returns the prediction's error in percentage points.
func (g *gain) miss() float64 { return 100 * (g.predicted - g.measured) }

// beyond returns by how many percentage points a gain is outside what the printed digits allow.
func (g *gain) beyond(gain float64) float64 { return 100 * max(0, g.least-gain, gain-g.most) }

// gains compares each run of another schedule with a run of 1F1B, and with a run of interleaved 1F1B. The two runs have
// the same model, stages and batch. They have the same micro-batch size if there is such a run.
func gains(all []Result) (out []gain) {
	for i := range all {
		r := &all[i]
		if r.Source != zeroBubbles || r.Prediction == nil || r.Calibration {
			continue
		}
		for _, base := range []string{"-1F1B", "-1F1B-I"} {
			if strings.HasSuffix(r.ID, "-1F1B") || strings.HasSuffix(r.ID, base) {
				continue
			}
			var over *Result
			for k := range all {
				o := &all[k]
				if o.Source != zeroBubbles || o.Prediction == nil || !strings.HasSuffix(o.ID, base) || o.Model != r.Model ||
					o.Shape.Stages != r.Shape.Stages || o.Shape.Batch != r.Shape.Batch {
					continue
				}
				if over == nil || over.Shape.MicroBatch != r.Shape.MicroBatch {
					over = o
				}
			}
			if over != nil {
				out = append(out, gain{r, over, over.StepS/r.StepS - 1, over.Prediction.StepS/r.Prediction.StepS - 1,
					over.Least/r.Most - 1, over.Most/r.Least - 1})
			}
		}
	}
	return out
}

// most is the error of a gain, in percentage points, above which ablations are added. The error is counted from the
// nearest gain that the printed digits allow. An ablation that reduces the error to `most` or less explains the gain.
const most = 3

func reproduceGains(ctx context.Context, _ table.Options, t *table.Table) error {
	entries, err := Entries()
	if err != nil {
		return err
	}
	b, all, err := predictOf(ctx, entries, zeroBubbles)
	if err != nil {
		return err
	}
	return b.gained(ctx, all, t)
}

// gained adds a row for each gain, with ablations if the error is large.
func (b *lab) gained(ctx context.Context, all []Result, t *table.Table) error {
	t.Source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, Tables 4, 6, 7, 10 to 12 (data/README.md)"
	b.ablated = map[string]float64{}
	compared, printed, found := gains(all), 0, explained{}
	for i := range compared {
		g := &compared[i]
		row := t.Number(fmt.Sprintf("%s over %s", g.of.ID, g.over.ID), 1+g.measured, 1+g.predicted, "%.3f", "").Ratio()
		row.In(g.over.ID)
		row.Difference = fmt.Sprintf("%+.1f points", g.miss())
		if math.Abs(g.miss()) > most {
			printed++
			row.Why = fmt.Sprintf("at most %d points off what the printed digits leave open", most)
		}
		if g.beyond(g.predicted) <= most {
			continue
		}
		for _, a := range otherwise {
			then, err := b.under(ctx, g, a)
			if err != nil {
				return err
			}
			row.Ablate(a.what, 1+then, "%.3f")
		}
		found.add(row, nearest(row, most, func(value float64) float64 { return g.beyond(value - 1) }))
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%d of %d gains are over %d points off, %d of them also from the nearest gain "+
		"that the printed digits allow", printed, len(compared), most, found.total()))
	t.Notes = append(t.Notes, found.notes(fmt.Sprintf("within %d points", most))...)
	return nil
}

// assumption is an alternative to an assumption of the predictions, applied to both runs of a gain.
type assumption struct {
	what string
	// step returns a run's step under the alternative assumption, in seconds.
	step func(b *lab, r *Result, c *cluster.Cluster) (float64, error)
}

// updated names the assumption for which the function `passes` computes the time of an update.
const updated = "updates make all of their passes over memory"

var otherwise = []assumption{
	{"split schedules wait for messages, as 1F1B does", func(b *lab, r *Result, c *cluster.Cluster) (float64, error) {
		return b.step(r, waited(c, true), r.Shape)
	}},
	{"messages take what the authors timed (Table 9)", func(b *lab, r *Result, c *cluster.Cluster) (float64, error) {
		return b.step(r, b.timed(r, c), r.Shape)
	}},
	{"split schedules wait for half of their messages", func(b *lab, r *Result, c *cluster.Cluster) (float64, error) {
		waits, err := b.step(r, waited(c, true), r.Shape)
		return (waits + r.Prediction.StepS) / 2, err
	}},
	{"no schedule waits for messages", func(b *lab, r *Result, c *cluster.Cluster) (float64, error) {
		return b.step(r, waited(c, false), r.Shape)
	}},
	{"all flush their pipeline", func(b *lab, r *Result, c *cluster.Cluster) (float64, error) {
		s := r.Shape
		s.NoFlush = false
		return b.step(r, c, s)
	}},
	{updated, func(_ *lab, r *Result, _ *cluster.Cluster) (float64, error) {
		return r.Prediction.StepS - r.Prediction.Parts.UpdateS + passes(r), nil
	}},
	{"stages take what the authors timed (Table 9)", func(_ *lab, r *Result, _ *cluster.Cluster) (float64, error) {
		step, err := stagesTimed(r)
		return step + r.Prediction.Parts.UpdateS, err
	}},
	{"stages take what the authors timed, and " + updated, func(_ *lab, r *Result, _ *cluster.Cluster) (float64, error) {
		step, err := stagesTimed(r)
		return step + passes(r), err
	}},
	{"orders are the handcrafted ZB-H1 and ZB-H2", func(b *lab, r *Result, c *cluster.Cluster) (float64, error) {
		s := r.Shape
		switch s.Room {
		case s.Stages:
			s.Schedule, s.Room = "zb-h1", 0
		case 2 * s.Stages:
			s.Schedule, s.Room = "zb-h2", 0
		}
		return b.step(r, c, s)
	}},
}

// under returns a gain under another assumption.
func (b *lab) under(ctx context.Context, g *gain, a assumption) (float64, error) {
	var steps [2]float64
	for i, r := range []*Result{g.over, g.of} {
		key := a.what + ": " + r.ID
		took, ok := b.ablated[key]
		if !ok {
			c, err := b.preset(ctx, r.Preset)
			if err != nil {
				return 0, err
			}
			if took, err = a.step(b, r, c); err != nil {
				return 0, fmt.Errorf("reproduce: zero-bubble: %s: %w", key, err)
			}
			b.ablated[key] = took
		}
		steps[i] = took
	}
	return steps[0]/steps[1] - 1, nil
}

func (b *lab) step(r *Result, c *cluster.Cluster, s shape.Shape) (float64, error) {
	m, err := b.model(r.Model)
	if err != nil {
		return 0, err
	}
	p, err := shape.Predict(m, c, s)
	if err != nil {
		return 0, err
	}
	return p.StepS, nil
}

// waited returns a copy of the cluster. `is` says whether its devices wait for their messages.
func waited(c *cluster.Cluster, is bool) *cluster.Cluster {
	c = c.Copied()
	for i := range c.Levels {
		c.Levels[i].OccupiesDevice = is
	}
	return c
}

// timed returns a cluster on which a run's messages take the times of Table 9 for the run's model. If Table 9 has other
// micro-batches, the time per byte stays the same.
func (b *lab) timed(r *Result, c *cluster.Cluster) *cluster.Cluster {
	c = c.Copied()
	all, _ := rows("zero_bubble_table9_stage_times") // Entries has already read this file without an error
	for _, one := range all {
		if !strings.Contains(r.ID, "-"+one["model"]+"-") {
			continue
		}
		bytes := 2 * float64(one.count("micro_batch")*r.Model.Positions*r.Model.Hidden)
		for i := range c.Levels {
			c.Levels[i].BandwidthBytesPerSecond = bytes / (one.number("t_comm_ms") / 1e3)
			c.Levels[i].LatencyS = 0
		}
	}
	return c
}

// passes returns the time of a run's update if Megatron-LM's optimizer makes all of its passes over memory (in f16,
// optimizer/optimizer.py). Bytes per parameter: gradients widened 6, unscaled 8, read for their norm 4, clipped 8, Adam
// 28, weights narrowed 6, gradients zeroed 2. Predictions count 28 of these 62. With post-validation, weights and
// states are also copied, which is 24 more, so that a wrong step can be undone exactly (save_parameters_backup of Qi et
// al.'s version).
func passes(r *Result) float64 {
	bytes := 62.0
	if r.Shape.NoFlush {
		bytes += 24
	}
	return r.Prediction.Parts.UpdateS * bytes / 28
}

// stagesTimed returns a run's step without its update. Stages and messages take the times of Table 9 for the run's
// model, and nothing else takes time. If the run's stages or micro-batches differ from Table 9's, the table's times are
// changed in proportion to blocks and samples.
func stagesTimed(r *Result) (float64, error) {
	all, err := rows("zero_bubble_table9_stage_times")
	if err != nil {
		return 0, err
	}
	for _, one := range all {
		if !strings.Contains(r.ID, "-"+one["model"]+"-") {
			continue
		}
		samples := float64(r.Shape.MicroBatch) / one.number("micro_batch")
		part := samples * one.number("pp") / float64(r.Shape.Stages) / 1e3
		return shape.Uniform(r.Shape, part*one.number("t_forward_ms"), part*one.number("t_backward_input_ms"),
			part*one.number("t_backward_weight_ms"), samples*one.number("t_comm_ms")/1e3, 1)
	}
	return 0, fmt.Errorf("table 9 has no model of %s", r.ID)
}
