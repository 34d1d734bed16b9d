package run

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
)

// Advancing adapts the depths of a plan's schedule during training (AvgPipe §4.2, Algorithm 1; family.Advance). It
// starts without forwards in advance. Each time Every steps are done, it makes one advance, which adds forwards. It
// stops if the last Patience advances did not make the median step faster, if memory does not suffice for more, or if
// there are no greater depths. Then it keeps the fastest depths. Depths change only the order of instructions. The
// weights remain the same, bit for bit.
type Advancing struct {
	Plan  *plan.Plan
	Model *model.Model
	Clip  bool
	Rule  family.AdvanceRule // "" means family.Graded
	Every int                // steps with the same depths before they are judged, at least 2; 0 means 8
	// Patience and MinGain are those of family.Advance. A Patience of 0 means 2 advances. A MinGain of 0 means 1 % of a
	// step, which is about the natural variation of step times.
	Patience int
	MinGain  float64
	// Fits reports whether memory suffices for these depths; nil means always.
	Fits func(depths []int) bool
	// OnDepths is called with the depths of the next steps and the depths just measured. `stepS` is the step time with
	// the measured depths, in seconds; 0 means that it is not known yet. `settled` means that the depths are final.
	OnDepths func(next, measured []int, stepS float64, settled bool)

	control *family.Advance
	depths  []int
	settled bool
	from    int // the first step with the current depths
}

const (
	defaultAdvanceSteps    = 8
	defaultAdvancePatience = 2
	defaultAdvanceGain     = 0.01
)

// Next implements Config.Next.
func (a *Advancing) Next(so trace.Timeline, steps int) (*schedule.Program, error) {
	if a.control == nil {
		if err := a.begin(); err != nil {
			return nil, err
		}
	} else if !a.settled {
		a.adapt(so)
	}
	if n := len(so.Steps); n > 0 {
		a.from = so.Steps[n-1].Step + 1
	}
	pl := *a.Plan
	pl.Stages = slices.Clone(pl.Stages)
	for i := range pl.Stages {
		pl.Stages[i].Warmup = a.depths[i]
	}
	if !a.settled {
		steps = min(steps, max(2, cmp.Or(a.Every, defaultAdvanceSteps)))
	}
	return programs.Build(&pl, a.Model.TiedLayers(), a.Clip, steps)
}

func (a *Advancing) begin() error {
	f, err := family.Lookup(a.Plan.Schedule)
	if err != nil {
		return err
	}
	if f.Warmup == nil {
		return fmt.Errorf("run: schedule %s has depths of its own; forwards in advance are for 1f1b and elastic", f.Name)
	}
	a.control = &family.Advance{
		Stages: len(a.Plan.Stages), MicroBatches: a.Plan.MicroBatches, Rule: a.Rule,
		Patience: cmp.Or(a.Patience, defaultAdvancePatience), MinGain: cmp.Or(a.MinGain, defaultAdvanceGain),
	}
	a.depths, err = a.control.Depths()
	if err == nil && a.OnDepths != nil {
		a.OnDepths(a.depths, nil, 0, false)
	}
	return err
}

// adapt judges the depths by the steps since they were chosen. It ignores the first of these steps, which fills the
// pipeline.
func (a *Advancing) adapt(so trace.Timeline) {
	var took []float64
	for i, m := range so.Steps {
		if i > 0 && m.Step > a.from {
			took = append(took, m.EndS-so.Steps[i-1].EndS)
		}
	}
	if len(took) == 0 {
		return
	}
	median := stats.Median(took)
	deeper := a.control.Deeper()
	before := a.depths
	a.depths, a.settled = a.control.Next(median, deeper != nil && (a.Fits == nil || a.Fits(deeper)))
	if a.OnDepths != nil {
		a.OnDepths(a.depths, before, median, a.settled)
	}
}
