// Package published compares measured training runs with millrace's predictions.
//
// It has no input; importing it registers the experiments "published", "advice" and "zero-bubble". "published" has the
// measured and the predicted step of every judged row of data/, whose README has the sources. It also has the error by
// source, and the order of runs of one model. For rows that are off by a fifth it adds the effect of one assumption.
// Rows that no shape can express are listed with the reason. "advice" has the layouts that a sweep chooses for the same
// runs, and "zero-bubble" the gains of schedules.
//
// A preset is a device with a software family. Its numbers in presets/ are those of data sheets. Whenever the
// experiment runs, it calibrates them to the calibration rows (package tune/calibrate), and to no judged row. One
// assumption was chosen with knowledge of judged rows: the zero-bubble runtime waits for no message
// (presets/zero-bubble-a100-ahead.yaml).
package published

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/tune/calibrate"
	"github.com/millrace-ml/millrace/tune/shape"
)

func init() {
	table.Register("published", "Published training runs on GPUs: measured and predicted seconds of a step",
		table.Uses{Others: true}, reproduce)
}

// Result is an entry with its prediction.
type Result struct {
	Entry
	Prediction *shape.Prediction // nil if there is none
	Why        string            // why there is none
}

// Off returns the relative error of the prediction.
func (r *Result) Off() float64 { return off(r.Prediction.StepS, r.StepS) }

// predict predicts every entry. The returned lab has the fits of the presets.
func predict(ctx context.Context) (*lab, []Result, error) {
	entries, err := Entries()
	if err != nil {
		return nil, nil, err
	}
	return predictOf(ctx, entries, "")
}

// predictOf predicts the entries of one source; "" means all.
func predictOf(ctx context.Context, entries []Entry, source string) (*lab, []Result, error) {
	b := newLab(entries)
	var out []Result
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if source != "" && e.Source != source {
			continue
		}
		r := Result{Entry: e, Why: e.Skip}
		if r.Why == "" {
			var err error
			if r.Prediction, err = b.predict(ctx, &e); err != nil {
				r.Why = err.Error()
			}
		}
		out = append(out, r)
	}
	return b, out, nil
}

func newLab(entries []Entry) *lab {
	return &lab{entries: entries, presets: map[string]*cluster.Cluster{}, models: map[Model]*model.Model{},
		fits: map[string]*calibrate.Fit{}}
}

func (b *lab) predict(ctx context.Context, e *Entry) (*shape.Prediction, error) {
	c, err := b.preset(ctx, e.Preset)
	if err != nil {
		return nil, err
	}
	m, err := b.model(e.Model)
	if err != nil {
		return nil, err
	}
	s, err := b.settled(e, c)
	if err != nil {
		return nil, err
	}
	return shape.Predict(m, c, s)
}

// Sum summarises the predictions for a source.
type Sum struct {
	Judged, Expressed int
	Mean              float64 // relative error of step times
	Calibrated        bool    // presets are calibrated to rows of the source
}

// BySource summarises judged rows by source.
func BySource(all []Result) map[string]Sum {
	out := map[string]Sum{}
	for _, r := range all {
		s := out[r.Source]
		if s.Calibrated = s.Calibrated || r.Calibration; !r.Calibration {
			if s.Judged++; r.Prediction != nil {
				s.Mean = (s.Mean*float64(s.Expressed) + r.Off()) / float64(s.Expressed+1)
				s.Expressed++
			}
		}
		out[r.Source] = s
	}
	return out
}

// reproduce fills in the table.
func reproduce(ctx context.Context, _ table.Options, t *table.Table) error {
	b, all, err := predict(ctx)
	if err != nil {
		return err
	}
	return b.tabulate(ctx, all, t)
}

// tabulate adds a row for each judged entry. It adds notes for sources, presets, and entries that no layout expresses.
func (b *lab) tabulate(ctx context.Context, all []Result, t *table.Table) error {
	t.Source = "data/README.md of this package: papers, repositories and documentation, 2021 to 2026"
	skipped := map[string]int{}
	for i := range all {
		r := &all[i]
		switch {
		case r.Calibration:
			continue
		case r.Prediction == nil:
			skipped[r.Source+": "+r.Why]++
			continue
		}
		row := t.Number(r.ID+", "+r.Prediction.Shape.String(), r.StepS, r.Prediction.StepS, "%.4g s", "")
		if r.Group != "" {
			row.In(r.Group)
		}
		if r.Off() > 0.2 {
			if err := b.ablate(ctx, r, row); err != nil {
				return err
			}
		}
	}
	sums := BySource(all)
	expressed, judged := 0, 0
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		expressed, judged = expressed+s.Expressed, judged+s.Judged
		if s.Expressed > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: mean error %.1f %% of %d of %d rows", name, 100*s.Mean, s.Expressed,
				s.Judged))
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%d of %d judged rows are expressed", expressed, judged))
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		t.Notes = append(t.Notes, fmt.Sprintf("not expressed: %d of %s", skipped[name], name))
	}
	for _, name := range slices.Sorted(maps.Keys(b.fits)) {
		f := b.fits[name]
		text := fmt.Sprintf("preset %s by %d observations, error %.1f %% before, %.1f %% after, %.1f %% held out:", name,
			len(f.Residual), 100*f.Before, 100*f.After, 100*f.HeldOut)
		for _, n := range f.Numbers {
			text += fmt.Sprintf(" %s %.3g -> %.3g;", n.Name, n.Before, n.After)
		}
		t.Notes = append(t.Notes, text)
	}
	return nil
}

// ablate adds to a row with a large error its values under other assumptions.
func (b *lab) ablate(ctx context.Context, r *Result, row *table.Row) error {
	c, err := b.preset(ctx, r.Preset)
	if err != nil {
		return err
	}
	m, err := b.model(r.Model)
	if err != nil {
		return err
	}
	for _, a := range []struct {
		name   string
		change func(s *shape.Shape, c *cluster.Cluster)
	}{
		{"no collective hides behind computations", func(_ *shape.Shape, c *cluster.Cluster) {
			edit(c, func(k *cluster.Kernels) { k.Overlap = 0 })
		}},
		{"links between nodes are half as fast", func(_ *shape.Shape, c *cluster.Cluster) {
			l := &c.Levels[len(c.Levels)-1]
			l.BandwidthBytesPerSecond /= 2
			l.CollectiveBandwidthBytesPerSecond /= 2
		}},
		{"kernels do not depend on size", func(_ *shape.Shape, c *cluster.Cluster) {
			edit(c, func(k *cluster.Kernels) {
				r := k.Rate(cluster.RateMatmul)
				r.HalfWidth, r.HalfRows = 0, 0
				k.Rates[cluster.RateMatmul] = r
			})
		}},
		{"attention is a tenth of its speed", func(_ *shape.Shape, c *cluster.Cluster) {
			edit(c, func(k *cluster.Kernels) {
				r := k.Rate(cluster.RateAttention)
				r.Limit /= 10
				k.Rates[cluster.RateAttention] = r
			})
		}},
		{"blocks are computed again", func(s *shape.Shape, _ *cluster.Cluster) { s.Recompute = "full" }},
	} {
		s, other := r.Prediction.Shape, c.Copied()
		a.change(&s, other)
		p, err := shape.Predict(m, other, s)
		if err != nil {
			continue // the assumption does not fit the shape
		}
		row.Ablate(a.name, p.StepS, "%.4g s")
	}
	return nil
}

// edit changes the kernels of a copied cluster's device type.
func edit(c *cluster.Cluster, change func(k *cluster.Kernels)) {
	change(c.DeviceTypes[c.Devices[0]].Kernels)
}
