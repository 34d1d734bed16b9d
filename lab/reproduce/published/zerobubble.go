package published

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/tune/shape"
)

func init() {
	table.Register("zero-bubble", "Zero Bubble Pipeline Parallelism: gains over 1F1B and over interleaved 1F1B",
		table.Uses{Others: true}, reproduceGains)
}

const zeroBubbles = "zero_bubble_throughput"

// gain is how much faster one run is than another of the same model, devices and batch, as measured and as predicted.
type gain struct {
	of, over            *Result
	measured, predicted float64
}

// miss returns the prediction's error in percentage points.
func (g *gain) miss() float64 { return 100 * (g.predicted - g.measured) }

// gains compares each run of another schedule with one of 1F1B, and with one of interleaved 1F1B. The two runs
// have the same model, stages and batch, and the same micro-batch size if there is such a run.
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
				out = append(out, gain{r, over, over.StepS/r.StepS - 1, over.Prediction.StepS/r.Prediction.StepS - 1})
			}
		}
	}
	return out
}

// most is the error of a gain, in percentage points, above which ablations are added.
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
	found := gains(all)
	explained, missed := map[string]int{}, 0
	for i := range found {
		g := &found[i]
		row := t.Number(fmt.Sprintf("%s over %s", g.of.ID, g.over.ID), 1+g.measured, 1+g.predicted, "%.3f", "").Ratio()
		row.In(g.over.ID)
		row.Difference = fmt.Sprintf("%+.1f points", g.miss())
		if math.Abs(g.miss()) <= most {
			continue
		}
		missed++
		explains := false
		for _, a := range otherwise {
			then, err := b.under(ctx, g, a)
			if err != nil {
				return err
			}
			row.Ablate(a.what, 1+then, "%.3f")
			if !explains && math.Abs(100*(then-g.measured)) <= most {
				explains = true
				explained[a.what]++
			}
		}
		if !explains {
			explained["none of these"]++
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%d of %d gains are over %d points off", missed, len(found), most))
	for _, a := range append(otherwise, assumption{what: "none of these"}) {
		if n := explained[a.what]; n > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%d of them would not be if %s", n, a.what))
		}
	}
	return nil
}

// assumption is an alternative to an assumption of the predictions, applied to both runs of a gain.
type assumption struct {
	what string
	// step returns a run's step under the alternative assumption, in seconds.
	step func(b *lab, r *Result, c *cluster.Cluster) (float64, error)
}

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
	{"no optimizer's update", func(_ *lab, r *Result, _ *cluster.Cluster) (float64, error) {
		return r.Prediction.StepS - r.Prediction.Parts.UpdateS, nil
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
	{"stages are alike, and a forward and both halves of a backward", (*lab).alike},
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

// waited returns a cluster whose devices wait for their messages, or do not wait.
func waited(c *cluster.Cluster, is bool) *cluster.Cluster {
	c = c.Copied()
	for i := range c.Levels {
		c.Levels[i].OccupiesDevice = is
	}
	return c
}

// timed gives a run's messages the times of Table 9 for its model. If Table 9 has other micro-batches, the time per
// byte stays the same.
func (b *lab) timed(r *Result, c *cluster.Cluster) *cluster.Cluster {
	c = c.Copied()
	all, _ := rows("zero_bubble_table9_stage_times") // Entries has read them before
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

// alike returns the step of a run if all its stages have the same number of blocks and nothing else. The forward and
// both halves of the backward then take the same time, and the run has no messages and no update.
func (b *lab) alike(r *Result, c *cluster.Cluster) (float64, error) {
	blocks := (r.Model.Layers + 2) / r.Shape.Stages
	all, err := b.part(r.Model, blocks, r.Shape.MicroBatch, 1, false, false, func(k kernels.Cost) float64 {
		return k.ForwardS + k.InputS + k.WeightS
	})(c)
	if err != nil {
		return 0, err
	}
	return shape.Uniform(r.Shape, all/3, all/3, all/3, 0, 1)
}
