package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run"
)

// PredictionRow is one plan, predicted and measured.
type PredictionRow struct {
	Plan      string         `json:"plan"`
	Predicted plan.Predicted `json:"predicted"`
	Measured  report.Numbers `json:"measured"`
	OffStep   float64        `json:"off_step"`   // error of the step, relative to the measured step
	OffMemory float64        `json:"off_memory"` // error of the worst worker, relative to its measured memory
	// OfMost is the largest ratio of a worker's measured memory to the upper bound on its memory, over all workers and
	// trainings.
	OfMost    float64    `json:"of_most"`
	SameCount bool       `json:"same_count"` // on every worker, the number of live micro-batches is the predicted one
	Ratios    []float64  `json:"ratios"`     // by round: the median step divided by its prediction
	Parts     []stepPart `json:"parts"`
}

// Predictions is the result of bench prediction.
type Predictions struct {
	record.Head
	Model   string            `json:"model"`
	Workers int               `json:"workers"`
	Rows    []PredictionRow   `json:"rows,omitempty"` // the chosen plan, and random splits
	Summary PredictionSummary `json:"summary"`
}

// PredictionSummary summarises rows. Errors are relative to what was measured.
type PredictionSummary struct {
	Plans        int     `json:"plans"`
	StepMedian   float64 `json:"step_median"`
	StepWorst    float64 `json:"step_worst"`
	MemoryMedian float64 `json:"memory_median"`
	MemoryWorst  float64 `json:"memory_worst"`
	Exact        int     `json:"exact"`       // plans with the predicted number of live micro-batches on every worker
	Correlation  float64 `json:"correlation"` // between predicted and measured throughput
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (p *Predictions) Kind() string { return "prediction" }

// Recount returns an error if the summary does not follow from the rows.
func (p *Predictions) Recount() error {
	if len(p.Rows) == 0 {
		if !p.Carried() {
			return errors.New("rows has no plan; the chosen one is there at least")
		}
		return nil
	}
	counted := Summarized(p.Rows)
	return errors.Join(p.Value("summary.plans", float64(p.Summary.Plans), float64(counted.Plans)),
		p.Value("summary.step_median", p.Summary.StepMedian, counted.StepMedian),
		p.Value("summary.step_worst", p.Summary.StepWorst, counted.StepWorst),
		p.Value("summary.memory_median", p.Summary.MemoryMedian, counted.MemoryMedian),
		p.Value("summary.memory_worst", p.Summary.MemoryWorst, counted.MemoryWorst),
		p.Value("summary.exact", float64(p.Summary.Exact), float64(counted.Exact)),
		p.Value("summary.correlation", p.Summary.Correlation, counted.Correlation))
}

// Summarized returns the summary of rows.
func Summarized(rows []PredictionRow) PredictionSummary {
	var steps, memory, predicted, measured []float64
	s := PredictionSummary{Plans: len(rows)}
	for _, r := range rows {
		steps, memory = append(steps, r.OffStep), append(memory, r.OffMemory)
		predicted, measured = append(predicted, r.Predicted.SamplesPerSecond), append(measured, r.Measured.SamplesPerSecond)
		if r.SameCount {
			s.Exact++
		}
	}
	s.StepMedian, s.StepWorst = stats.Median(steps), race.Worst(steps)
	s.MemoryMedian, s.MemoryWorst = stats.Median(memory), race.Worst(memory)
	s.Correlation = stats.Correlation(predicted, measured)
	return s
}

// ratio returns the measured step divided by its prediction.
func (r PredictionRow) ratio() float64 { return r.Measured.StepS / r.Predicted.StepS }

// MiddleTraining returns the training of a plan whose ratio of measured to predicted step is the median over all
// trainings. If their number is even, it takes the larger of the two middle ratios. The result also has the ratios of
// all trainings and their largest OfMost.
func MiddleTraining(all []PredictionRow) PredictionRow {
	var ratios []float64
	for _, r := range all {
		ratios = append(ratios, r.ratio())
	}
	slices.SortStableFunc(all, func(a, b PredictionRow) int { return cmp.Compare(a.ratio(), b.ratio()) })
	r := all[len(all)/2]
	r.Ratios = ratios
	for _, other := range all {
		r.OfMost = max(r.OfMost, other.OfMost)
	}
	return r
}

func CompareWith(pl *plan.Plan, r *run.Result) PredictionRow {
	n := report.NumbersOf(&r.Timeline, SettleSteps, pl.Batch())
	row := PredictionRow{Plan: report.ShortPlan(pl), Predicted: *pl.Predicted, Measured: n,
		SameCount: slices.Equal(pl.Predicted.PeakActivations, n.PeakActivations)}
	row.OffStep = race.Off(pl.Predicted.StepS, n.StepS)
	for w, bytes := range n.PeakBytes {
		row.OfMost = max(row.OfMost, float64(bytes)/float64(pl.Predicted.Needs()[w]))
		row.OffMemory = max(row.OffMemory, race.Off(float64(pl.Predicted.MemoryBytes[w]), float64(bytes)))
	}
	return row
}

func WritePredictions(w io.Writer, rows []PredictionRow) error {
	within, reach := "least and most", 0
	if len(rows[0].Ratios) >= LeastRepeats {
		within = "95 % interval"
	}
	t := report.Table{Head: []string{"plan", " predicted ms", " measured ms", " measured over predicted", " " + within,
		" step off", " memory off", "live micro-batches"}}
	for _, r := range rows {
		among, err := stats.MedianInterval(r.Ratios, 0.95)
		if err != nil { // too few rounds
			among = stats.Interval{Lo: slices.Min(r.Ratios), Hi: slices.Max(r.Ratios)}
		}
		if among.Lo <= 1.05 && among.Hi >= 0.95 {
			reach++
		}
		live := "exact"
		if !r.SameCount {
			live = fmt.Sprintf("%v, measured %v", r.Predicted.PeakActivations, r.Measured.PeakActivations)
		}
		t.Add(r.Plan, fmt.Sprintf("%.1f", 1e3*r.Predicted.StepS), fmt.Sprintf("%.1f", 1e3*r.Measured.StepS),
			fmt.Sprintf("%.3f", r.ratio()), fmt.Sprintf("%.3f to %.3f", among.Lo, among.Hi),
			fmt.Sprintf("%.1f %%", 100*r.OffStep), fmt.Sprintf("%.1f %%", 100*r.OffMemory), live)
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	s := Summarized(rows)
	fmt.Fprintf(w, "\nWorst: step %.1f %%, memory %.1f %%; median: step %.1f %%, memory %.1f %%.\n",
		100*s.StepWorst, 100*s.MemoryWorst, 100*s.StepMedian, 100*s.MemoryMedian)
	fmt.Fprintf(w, "Of the %d plans, %d reach within 5 %% of their predictions (%s).\n", len(rows), reach, within)
	most := 0.0
	for _, r := range rows {
		most = max(most, r.OfMost)
	}
	fmt.Fprintf(w, "Of what the plans say that no timing exceeds, workers held %.1f %% at most.\n", 100*most)
	_, err := fmt.Fprintf(w, "Throughput, predicted against real over the plans (PipeDream Fig. 15): correlation %.3f.\n",
		s.Correlation)
	return err
}
