package bench

import (
	"errors"
	"math"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
)

// Tuner compares what AvgPipe's tuner chooses by simulation with what a traversal of the whole grid chooses.
type Tuner struct {
	record.Head
	Model      string         `json:"model"`
	Settings   []TunerSetting `json:"settings,omitempty"` // the settings that were tried
	StepMedian float64        `json:"step_median"`        // median of the relative errors of predicted steps
	StepWorst  float64        `json:"step_worst"`
	// Cost is how long the tuner takes to choose, divided by the time that a traversal takes for one setting. The
	// setting's time is scaled to the number of batches that the tuner profiles.
	Cost float64 `json:"cost"`
	// Behind is how much longer a batch takes with the tuner's choice than with the traversal's choice, as a fraction.
	Behind float64 `json:"behind"`
}

// TunerSetting is one setting of the grid.
type TunerSetting struct {
	MicroBatches int     `json:"micro_batches"`
	Pipelines    int     `json:"pipelines"`
	PredictedS   float64 `json:"predicted_s"` // time of a batch
	MeasuredS    float64 `json:"measured_s"`
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (t *Tuner) Kind() string { return "tuner" }

// Count fills in the errors of the settings' predictions.
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

// Recount returns an error if StepMedian or StepWorst does not follow from the settings.
func (t *Tuner) Recount() error {
	if len(t.Settings) == 0 && t.Carried() {
		return nil
	}
	counted := Tuner{Settings: t.Settings}
	counted.Count()
	return errors.Join(t.Median("step_median", t.off(), t.StepMedian, stats.Interval{}),
		t.Value("step_worst", t.StepWorst, counted.StepWorst))
}
