// Package published compares measured training runs with millrace's predictions.
//
// It has no input; importing it registers the experiments "published", "advice" and "zero-bubble". "published" shows
// the measured and the predicted step of every judged row of data/, whose README names the sources. It also shows the
// mean error for each source, and compares the order of the runs of a model. Rows that no shape can express are listed
// with the reason. "advice" shows the layouts that a sweep chooses for the same runs, and "zero-bubble" shows how much
// faster zero-bubble schedules are than others.
//
// A row that is off by more than a fifth is predicted again with one assumption changed (ablations). It is explained if
// one of these predictions is within 10 %, and its note names the nearest prediction. For a gain, both limits are 3
// percentage points, counted from the nearest gain that the digits of the printed rates allow. Each ablation is
// something that the row's software or machine does, or may do if the source does not print it. Ablations were chosen
// with knowledge of judged rows, but no other prediction uses them.
//
// A preset is a device with a software family. Its numbers in presets/ are from data sheets. Whenever the experiment
// runs, it calibrates them to the calibration rows (package tune/calibrate), and to no judged row. One assumption was
// chosen with knowledge of judged rows: the zero-bubble runtime waits for no message
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
	Mean              float64 // mean relative error of step times
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
	skipped, found := map[string]int{}, explained{}
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
		if r.Off() > farOff {
			why, err := b.ablate(ctx, r, row)
			if err != nil {
				return err
			}
			found.add(row, why)
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
	t.Notes = append(t.Notes, fmt.Sprintf("%d of %d judged rows are expressed", expressed, judged),
		fmt.Sprintf("%d of them are over %.0f %% off", found.total(), 100*farOff))
	t.Notes = append(t.Notes, found.notes(fmt.Sprintf("within %.0f %%", 100*table.Near))...)
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
