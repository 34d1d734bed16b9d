package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// Lag says how old a stage's weights are when it computes in a stream. The age is the number of updates that the
// weights lack. Only updates before the one that uses this computation's gradient count.
type Lag struct {
	Pipeline, Stage int
	Span            int // micro-batches that one update of the stage covers
	Forward         int
	Backward        int
}

type stageRow struct {
	Stage           int
	Class           string
	Layers, Names   string
	Workers         string
	Warmup          string
	Recompute       string // "" if the stage does not recompute
	Busy, Predicted string
	Columns         []layerColumn
	Weights         string // "" if there is only one version
}

// layerColumn is a layer in the drawing of the plan. Its height is its time.
type layerColumn struct{ Name, Says, Height string }

// rivalRow is a rival of the plan, or the plan itself.
type rivalRow struct {
	Name, Micros, Step, Bubble, Memory, Why string
	Computes, Idles                         string // widths, relative to the longest bar
	Cut                                     bool   // the step is longer than the longest bar, so its bar is cut off
	Chosen                                  bool
}

// stageClasses is how many stages have colours of their own; after that, colours repeat.
const stageClasses = 6

func (v *pageView) plan(in Inputs, predicted *Numbers) {
	p := in.Plan
	if p == nil {
		return
	}
	if v.Subtitle != "" {
		v.Subtitle += " · "
	}
	v.Subtitle += fmt.Sprintf("%s · %s · %s", terminal.Count(len(p.Stages), "stage"), p.Schedule, p.Micros())
	if n := p.Together(); n > 1 {
		v.Subtitle += " for each of " + terminal.Count(n, "pipeline")
		v.Own = true
	}
	v.Subtitle += " · weights " + p.Weights
	most := slices.Max(append(slices.Clone(in.LayerS), 0))
	for i, s := range p.Stages {
		r := stageRow{Stage: i, Class: fmt.Sprintf("t%d", i%stageClasses), Layers: layersOf(&s), Workers: list(s.Devices),
			Warmup: "–", Busy: "–"}
		if s.Recompute.Again() {
			r.Recompute, v.HasRecompute = s.Recompute.String(), true
		}
		if s.Warmup > 0 {
			r.Warmup, v.HasWarmup = fmt.Sprint(s.Warmup), true
		}
		for l := s.FirstLayer; l >= 0 && l <= s.LastLayer && s.LastLayer < len(in.LayerNames); l++ {
			r.Columns = append(r.Columns, in.column(l, most))
		}
		if n := len(r.Columns); n > 0 {
			r.Names = r.Columns[0].Name
			if n > 1 {
				r.Names += " … " + r.Columns[n-1].Name
			}
		}
		if b, ok := in.stageBusy(predicted, i); ok {
			r.Busy = terminal.Duration(b)
		}
		r.Weights = in.weightsOf(i)
		v.HasLags = v.HasLags || r.Weights != ""
		v.Stages = append(v.Stages, r)
	}
	v.LayersDrawn = len(v.Stages) > 0 && len(v.Stages[0].Columns) > 0
	v.Names, v.Few = len(in.LayerNames) <= 24, len(in.LayerNames) <= 6
	v.Why = p.Why
	v.rivals(p, predicted)
	if p.LowerBound != nil && p.LowerBound.StepS > 0 {
		v.Bound = fmt.Sprintf("No plan of this kind takes less than %s a step; what is predicted of this one is %s.",
			terminal.Duration(p.LowerBound.StepS), p.LowerBound.Above())
	}
}

// stageBusy returns how long the first worker of a stage computes in a predicted step. If that worker holds several
// stages, only the time for this stage counts.
func (in Inputs) stageBusy(predicted *Numbers, stage int) (seconds float64, ok bool) {
	if predicted == nil || len(in.Plan.Stages[stage].Devices) == 0 {
		return 0, false
	}
	worker := in.Plan.Stages[stage].Devices[0]
	all, ok := entry(predicted.BusyS, worker)
	if !ok || len(in.stagesOf(worker)) == 1 {
		return all, ok
	}
	own, whole := 0., 0.
	for i := range eventsOf(in.Simulated) {
		e := &in.Simulated.Events[i]
		f, read := trace.ParseFields(e.Instruction)
		if !read || e.Worker != worker || e.Lane != trace.Compute || !trace.IsBusy(e.Kind) {
			continue
		}
		if whole += e.EndS - e.StartS; f.Stage == stage {
			own += e.EndS - e.StartS
		}
	}
	if whole == 0 {
		return 0, false
	}
	return all * own / whole, true
}

// column draws the layer at position l in the plan's order. If the layers' times are unknown, all are equally high.
func (in Inputs) column(l int, most float64) layerColumn {
	if in.Plan.Order != nil && l < len(in.Plan.Order) {
		l = in.Plan.Order[l]
	}
	c := layerColumn{Height: "100%"}
	if l < len(in.LayerNames) {
		c.Name = in.LayerNames[l]
	}
	c.Says = c.Name
	if s, ok := entry(in.LayerS, l); ok && most > 0 {
		c.Says += ": " + terminal.Duration(s)
		c.Height = fmt.Sprintf("%.1f%%", max(2, 100*s/most))
	}
	return c
}

// weightsOf says which weights a stage's computations use; "" if there is only one version.
func (in Inputs) weightsOf(stage int) string {
	for _, l := range in.Lags {
		if l.Stage != stage || l.Pipeline != 0 {
			continue
		}
		text := l.text()
		if n := in.Plan.Together(); n > 1 {
			text += fmt.Sprintf(", of each of %d pipelines its own", n)
		}
		return text
	}
	return ""
}

// text says how old the weights are.
func (l Lag) text() string {
	behind := func(n int) string {
		if n == 0 {
			return "the newest"
		}
		return terminal.Count(n, "update") + " behind"
	}
	if l.Forward == l.Backward {
		return behind(l.Forward)
	}
	return "forward " + behind(l.Forward) + ", backward " + behind(l.Backward)
}

// rivals draws the plan and its rivals: the length of a step, and its bubble.
func (v *pageView) rivals(p *plan.Plan, predicted *Numbers) {
	if len(p.Rivals) == 0 || predicted == nil || predicted.StepS <= 0 {
		return
	}
	steps := []float64{predicted.StepS}
	for _, r := range p.Rivals {
		steps = append(steps, r.StepS)
	}
	whole := min(slices.Max(steps), 3*slices.Min(steps)) // longer steps are cut, with a note
	row := func(name, micros string, stepS, bubble float64, memory int64, why string) rivalRow {
		long := min(stepS, whole) / whole
		r := rivalRow{Name: name, Micros: micros, Step: terminal.Duration(stepS), Why: why, Cut: stepS > whole,
			Bubble:   UnitPart.Format(bubble),
			Computes: fmt.Sprintf("%.2f%%", 100*long*(1-bubble)), Idles: fmt.Sprintf("%.2f%%", 100*long*bubble)}
		if memory > 0 {
			r.Memory = UnitBytes.Format(float64(memory))
		}
		return r
	}
	var memory int64
	if len(predicted.PeakBytes) > 0 {
		memory = slices.Max(predicted.PeakBytes)
	}
	chosen := row(p.Layout(), fmt.Sprintf("%d × %d", p.MicroBatches, p.MicroBatch), predicted.StepS, predicted.Bubble,
		memory, "this plan")
	chosen.Chosen = true
	v.Rivals = append(v.Rivals, chosen)
	for i, r := range p.Rivals {
		if i > 0 && r.StepS == p.Rivals[i-1].StepS && r.Bubble == p.Rivals[i-1].Bubble {
			continue // it is named together with the rival before it
		}
		micros := ""
		if r.MicroBatches > 0 {
			micros = fmt.Sprintf("%d × %d", r.MicroBatches, r.MicroBatch)
		}
		why := r.Why
		if !r.Fits && !strings.Contains(why, "fit") {
			why = strings.TrimPrefix(why+", does not fit", ", ")
		}
		drawn := row(r.Title()+alike(p.Rivals[i:]), micros, r.StepS, r.Bubble, r.MemoryBytes, why)
		if len(v.Rivals) <= mostRivals {
			v.Rivals = append(v.Rivals, drawn)
		} else {
			v.More = append(v.More, drawn)
		}
	}
}

// mostRivals is the number of rivals that are shown at first.
const mostRivals = 7

// alike names the rivals that directly follow the first one and have the same step and bubble.
func alike(all []plan.Rival) string {
	var kinds []string
	for _, r := range all[1:] {
		if r.StepS != all[0].StepS || r.Bubble != all[0].Bubble {
			break
		}
		kinds = append(kinds, r.Kind)
	}
	if kinds == nil {
		return ""
	}
	return ", the same as " + strings.Join(kinds, ", ")
}

// version returns the version of the weights that an instruction uses. Versions count the updates of the instruction's
// stage. 0 is the version that plain training uses for the first micro-batch of the shown step. If the instruction uses
// no weights, or if there is only one version, it returns false.
func (in Inputs) version(f trace.Fields, number, first int) (int, bool) {
	for _, l := range in.Lags {
		if l.Pipeline != f.Pipeline || l.Stage != f.Stage {
			continue
		}
		own := floorDiv(number+first, l.Span) - floorDiv(first, l.Span)
		switch f.Kind {
		case "F":
			return own - l.Forward, true
		case "B", "I", "W":
			return own - l.Backward, true
		}
	}
	return 0, false
}

func floorDiv(a, b int) int { return int(math.Floor(float64(a) / float64(b))) }
