// Package report draws what a plan promised and what a run did.
//
// In: a Plan, a simulated and a measured Timeline, losses and evaluations, any of
// them missing. Out:
//
//   - Terminal: a summary that reads well at 80 columns;
//   - HTML: one page that needs nothing else, with both steps on one axis;
//   - Perfetto and ChromeJSON: the Timeline for other people's viewers;
//   - Grid: a schedule as papers draw it, as SVG or a page, a row for each worker;
//   - Table: rows as aligned text or as Markdown.
//
// Refused: Timelines that trace.Validate refuses, Inputs with nothing to draw.
// It starts no run, asks no simulator and opens no connection. What a run says of itself while it lasts is
// report/metrics.
package report

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// Inputs is what a report is drawn from. Every field may be missing, though not all.
type Inputs struct {
	Title      string          // "runs/gpt"; the model's name where it is empty
	Plan       *plan.Plan      // what ran where
	LayerNames []string        // the model's layers in order, for the drawing of the plan
	Simulated  *trace.Timeline // the prediction, made before the first step
	Measured   *trace.Timeline // the run
	// Losses and Evaluations are those of the whole run; where nil, the measured Timeline's.
	Losses      []trace.Loss
	Evaluations []trace.Evaluation
	// Batch is the samples of one step; where 0, the plan's.
	Batch int
	// Skip is how many first steps are left out of medians because caches and threads
	// are cold; 0 is a tenth of the steps, at least 1 and at most 10. -1 leaves none out.
	Skip int
	// Facts are shown as they stand: engine, cores, threads, seed.
	Facts []Fact
}

// Fact is a name and a value to show.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// filled is Inputs with the defaults in place, or why nothing can be drawn from them.
func (in Inputs) filled() (Inputs, error) {
	if in.Plan == nil && in.Simulated == nil && in.Measured == nil && len(in.Losses) == 0 {
		return in, fmt.Errorf("report: nothing to draw: want a plan, a Timeline or losses")
	}
	for _, t := range []struct {
		name string
		t    *trace.Timeline
	}{{"simulated", in.Simulated}, {"measured", in.Measured}} {
		if t.t == nil {
			continue
		}
		if err := t.t.Validate(); err != nil {
			return in, fmt.Errorf("report: the %s Timeline: %w", t.name, err)
		}
	}
	if in.Measured != nil {
		if in.Losses == nil {
			in.Losses = in.Measured.Losses
		}
		if in.Evaluations == nil {
			in.Evaluations = in.Measured.Evaluations
		}
	}
	if in.Plan != nil {
		in.Plan = byWorker(in.Plan)
	}
	if in.Batch == 0 && in.Plan != nil {
		in.Batch = in.Plan.StepSamples()
	}
	if in.Title == "" {
		in.Title = in.model()
	}
	return in, nil
}

// byWorker is a plan whose stages name workers in place of devices, as Timelines and predictions do: worker i is the
// i-th device in ascending order.
func byWorker(p *plan.Plan) *plan.Plan {
	devices := p.Devices()
	named := *p
	named.Stages = slices.Clone(p.Stages)
	for i := range named.Stages {
		s := &named.Stages[i]
		s.Devices = slices.Clone(s.Devices)
		for r, d := range s.Devices {
			s.Devices[r], _ = slices.BinarySearch(devices, d)
		}
	}
	return &named
}

func (in Inputs) model() string {
	if in.Plan != nil && in.Plan.Model != "" {
		return in.Plan.Model
	}
	for _, t := range []*trace.Timeline{in.Measured, in.Simulated} {
		if t != nil && t.Model != "" {
			return t.Model
		}
	}
	return "millrace"
}

// workers is how many workers the report has rows for.
func (in Inputs) workers() int {
	n := 0
	for _, t := range []*trace.Timeline{in.Simulated, in.Measured} {
		if t != nil {
			n = max(n, t.Workers)
		}
	}
	if in.Plan != nil {
		for _, s := range in.Plan.Stages {
			for _, d := range s.Devices {
				n = max(n, d+1)
			}
		}
	}
	return n
}

// stagesOf is the stages a worker holds by the plan.
func (in Inputs) stagesOf(worker int) []int {
	var out []int
	if in.Plan != nil {
		for s, stage := range in.Plan.Stages {
			for _, d := range stage.Devices {
				if d == worker {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// skip is how many of n steps are too early to count.
func (in Inputs) skip(n int) int {
	switch {
	case in.Skip > 0:
		return in.Skip
	case in.Skip < 0 || n < 3:
		return 0
	}
	return min(10, max(1, n/10))
}
