package bench

import (
	"errors"
	"math"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
)

// Tuner is AvgPipe's tuner by simulation beside a traversal of its grid.
type Tuner struct {
	record.Head
	Model      string         `json:"model"`
	Settings   []TunerSetting `json:"settings,omitempty"` // that were tried
	StepMedian float64        `json:"step_median"`        // how far predicted steps were off, as parts of the measured ones
	StepWorst  float64        `json:"step_worst"`
	// Cost is what the choice cost, in settings of a traversal with as many batches.
	Cost float64 `json:"cost"`
	// Behind is how much longer a batch of the choice takes than one of the traversal's.
	Behind float64 `json:"behind"`
}

// TunerSetting is one setting of the grid.
type TunerSetting struct {
	MicroBatches int     `json:"micro_batches"`
	Pipelines    int     `json:"pipelines"`
	PredictedS   float64 `json:"predicted_s"` // of a batch
	MeasuredS    float64 `json:"measured_s"`
}

// Kind is the figures' name in their file.
func (t *Tuner) Kind() string { return "tuner" }

// Count fills in how far the settings' predictions were off.
func (t *Tuner) Count() {
	off := t.off()
	t.StepMedian, t.StepWorst = stats.Median(off), 0
	for _, x := range off {
		t.StepWorst = max(t.StepWorst, x)
	}
}

func (t *Tuner) off() (all []float64) {
	for _, s := range t.Settings {
		all = append(all, math.Abs(s.PredictedS-s.MeasuredS)/s.MeasuredS)
	}
	return all
}

// Recount refuses distances that are not the settings'.
func (t *Tuner) Recount() error {
	if len(t.Settings) == 0 && t.Carried() {
		return nil
	}
	counted := Tuner{Settings: t.Settings}
	counted.Count()
	return errors.Join(t.Median("step_median", t.off(), t.StepMedian, stats.Interval{}),
		t.Value("step_worst", t.StepWorst, counted.StepWorst))
}
