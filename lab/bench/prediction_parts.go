package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/trace"
)

// stepPart compares the predicted and measured time of one kind of instruction in one worker's step. A step's time is
// the sum over its instructions of this kind. PredictedS and MeasuredS are the medians of this sum over all steps. Kind
// "-" is the time between instructions, in which the worker waited.
type stepPart struct {
	Worker     int     `json:"worker"`
	Kind       string  `json:"kind"`
	Count      int     `json:"count"` // instructions in a step
	PredictedS float64 `json:"predicted_s"`
	MeasuredS  float64 `json:"measured_s"`
}

const waiting = "-"

// StepParts compares the parts of steps in two Timelines. It leaves out the first steps of each.
func StepParts(predicted, measured *trace.Timeline, skipPredicted, skipMeasured int) []stepPart {
	expected, found := partTimes(predicted, skipPredicted), partTimes(measured, skipMeasured)
	var parts []stepPart
	for key, p := range found {
		parts = append(parts, stepPart{Worker: key.worker, Kind: key.kind, Count: p.count,
			PredictedS: stats.Median(expected[key].took), MeasuredS: stats.Median(p.took)})
	}
	slices.SortFunc(parts, func(a, b stepPart) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(b.Kind, a.Kind))
	})
	return parts
}

type partKey struct {
	worker int
	kind   string
}

type partTime struct {
	took  []float64 // by step
	count int
}

// partTimes adds up the computations of each step by worker and kind. Kind "-" has the time in which a worker waited in
// each step.
func partTimes(t *trace.Timeline, skip int) map[partKey]partTime {
	type stepKey struct {
		partKey
		step int
	}
	sums, counts := map[stepKey]float64{}, map[stepKey]int{}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Lane == trace.Compute && trace.IsBusy(e.Kind) {
			key := stepKey{partKey{e.Worker, e.Kind}, e.Step}
			sums[key] += e.EndS - e.StartS
			counts[key]++
		}
	}
	out := map[partKey]partTime{}
	for _, mark := range t.Settled(skip) {
		for w := range t.Workers {
			idle := mark.EndS - mark.StartS
			for key, sum := range sums {
				if key.step == mark.Step && key.worker == w {
					p := out[key.partKey]
					out[key.partKey] = partTime{append(p.took, sum), counts[key]}
					idle -= sum
				}
			}
			p := out[partKey{w, waiting}]
			out[partKey{w, waiting}] = partTime{append(p.took, idle), 0}
		}
	}
	return out
}

// WriteParts writes parts as a table.
func WriteParts(w io.Writer, parts []stepPart) error {
	t := report.Table{Head: []string{"worker", "kind", " in a step", " predicted ms", " measured ms", " over predicted"}}
	for _, p := range parts {
		over := "-"
		if p.PredictedS > 0 {
			over = fmt.Sprintf("%.3f", p.MeasuredS/p.PredictedS)
		}
		t.Add(p.Worker, p.Kind, p.Count, fmt.Sprintf("%.2f", 1e3*p.PredictedS), fmt.Sprintf("%.2f", 1e3*p.MeasuredS), over)
	}
	return t.Text(w)
}
