package avgpipe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func init() {
	table.Register("avgpipe-fig18", "AvgPipe Figure 18: what each method to tune the degrees costs", table.Uses{},
		figure18)
	table.Register("avgpipe-fig19", "AvgPipe Figure 19: what each method to tune the degrees gives", table.Uses{},
		figure19)
}

// tuned is a training, with what section 7.3 says about its tuning. A number that the paper does not print is 0.
type tuned struct {
	Training         training `yaml:",inline"`
	MicroBatches     int      `yaml:"micro_batches"` // micro-batches of the baselines
	TraversalMinutes float64  `yaml:"traversal_minutes"`
	ProfilingMinutes float64  `yaml:"profiling_minutes"` // the text's upper limit
	MaxNum           float64  `yaml:"max_num"`           // training time with max-num's degrees / shortest training time
	MaxSize          float64  `yaml:"max_size"`
	MaxSizeAtLeast   float64  `yaml:"max_size_at_least"`
	MaxSizePipelines int      `yaml:"max_size_pipelines"`
}

// simulated is a note that says what replaces the paper's machine.
const simulated = "the simulator is the machine: 20 batches are profiled, 10 of every setting traversed; 8 pipelines " +
	"at most for GNMT, 4 for the others, which is what the text has max-num find memory for"

// startS is the time to start a setting, in seconds: to start processes, load libraries and put a model on GPUs. Only
// values under the assumption "a setting takes 60 s to start" include it.
const startS = 60

// outcome holds the results of the tuning methods under some assumptions, with the simulator as the machine.
type outcome struct {
	traversal, printed, adjusted, simulator avgpipe.Choice
	maxNum, maxSize                         float64 // batch time with each guideline's degrees / shortest batch time
	maxNumAt, maxSizeAt                     avgpipe.Degrees
}

// over returns how many times as long a batch takes with the choice c as with the traversal's choice.
func (o *outcome) over(c avgpipe.Choice) float64 {
	return c.Measured.StepS / o.traversal.Measured.StepS
}

func (w tuned) in(ctx context.Context, x world) (*outcome, error) {
	load, sizes, err := x.load(ctx, w.Training, w.MicroBatches)
	if err != nil {
		return nil, err
	}
	found, err := avgpipe.Tune(ctx, avgpipe.Request{Workload: load, Sizes: sizes, Pipelines: w.Training.Pipelines,
		Machine: load.Simulated(), Rivals: true})
	if err != nil {
		return nil, err
	}
	var o outcome
	for m, to := range map[avgpipe.Method]*avgpipe.Choice{avgpipe.ByTraversal: &o.traversal,
		avgpipe.ByPrinted: &o.printed, avgpipe.ByAdjusted: &o.adjusted, avgpipe.BySimulator: &o.simulator} {
		if *to, err = choiceOf(found, m); err != nil {
			return nil, err
		}
	}
	o.maxNumAt = avgpipe.Degrees{MicroBatches: w.Training.Batch, Pipelines: w.Training.Pipelines}
	o.maxSizeAt = avgpipe.Degrees{MicroBatches: 1, Pipelines: w.MaxSizePipelines}
	for at, to := range map[avgpipe.Degrees]*float64{o.maxNumAt: &o.maxNum, o.maxSizeAt: &o.maxSize} {
		i := slices.IndexFunc(found.Grid, func(c avgpipe.Cell) bool { return c.At == at })
		if i < 0 {
			return nil, fmt.Errorf("%s of %s is not in the grid", at, w.Training.Name)
		}
		*to = found.Grid[i].Measured.StepS / o.traversal.Measured.StepS
	}
	return &o, nil
}

// choiceOf returns a method's choice. It returns an error if the method has no choice, or if its choice was refused or
// not measured.
func choiceOf(found *avgpipe.Result, m avgpipe.Method) (avgpipe.Choice, error) {
	for _, c := range found.Choices {
		if c.Method == m && c.Refused == "" && c.Measured != nil {
			return c, nil
		}
	}
	return avgpipe.Choice{}, errors.New(string(m) + " chose nothing")
}

func figure18(ctx context.Context, _ table.Options, t *table.Table) error {
	trainings, err := ofTrainings[tuned](t, "fig19")
	if err != nil {
		return err
	}
	for _, w := range trainings {
		o, err := w.in(ctx, world{})
		if err != nil {
			return err
		}
		w.cost(t, o)
	}
	t.Notes = append(t.Notes, simulated)
	return nil
}

func figure19(ctx context.Context, _ table.Options, t *table.Table) error {
	trainings, err := ofTrainings[tuned](t, "fig19")
	if err != nil {
		return err
	}
	for _, w := range trainings {
		all := append([]world{{}}, few...)
		found := make([]*outcome, len(all))
		err := atOnce(len(all), func(i int) (err error) {
			found[i], err = w.in(ctx, all[i])
			return err
		})
		if err != nil {
			return err
		}
		w.result(t, all, found)
	}
	t.Notes = append(t.Notes, simulated,
		"a training is taken to need as many batches whatever the degrees, so that its time goes as a batch's")
	return nil
}

// cost adds the rows of Figure 18.
func (w tuned) cost(t *table.Table, o *outcome) {
	name := w.Training.Name
	started := func(c avgpipe.Choice) float64 { return c.TuningS + startS*float64(c.Tried) }
	assumption := fmt.Sprintf("a setting takes %d s to start", startS)
	t.Number(fmt.Sprintf("%s, minutes tuning by traversal (%d settings)", name, o.traversal.Tried), w.TraversalMinutes,
		o.traversal.TuningS/60, "%.1f", "").In(name+", tuning").
		Ablate(assumption, started(o.traversal)/60, "%.1f")
	t.Bound(name+", minutes tuning by profiling one setting", "at most", w.ProfilingMinutes, o.printed.TuningS/60).
		Ablate(assumption, started(o.printed)/60, "%.2f")
	t.Number(name+", time tuning by traversal over profiling", w.TraversalMinutes/w.ProfilingMinutes,
		o.traversal.TuningS/o.printed.TuningS, "%.0fx", "").Ratio().
		Ablate(assumption, started(o.traversal)/started(o.printed), "%.0fx")
}

// result adds the rows of Figure 19.
func (w tuned) result(t *table.Table, all []world, found []*outcome) {
	name, base := w.Training.Name, found[0]
	for _, by := range []struct {
		what   string
		choice func(*outcome) avgpipe.Choice
		paper  float64
	}{
		{"traversal", func(o *outcome) avgpipe.Choice { return o.traversal }, 1},
		{"profiling, the printed equations", func(o *outcome) avgpipe.Choice { return o.printed }, 0},
		{"profiling, the equations adjusted", func(o *outcome) avgpipe.Choice { return o.adjusted }, 0},
		{"the simulator", func(o *outcome) avgpipe.Choice { return o.simulator }, 0},
	} {
		c := by.choice(base)
		row := t.Number(fmt.Sprintf("%s, training by %s: %s", name, by.what, c.At), by.paper, base.over(c), "%.2fx",
			"").In(name)
		for i := range all[1:] {
			o := found[i+1]
			row.Ablate(all[i+1].String(), o.over(by.choice(o)), "%.2fx at "+by.choice(o).At.String())
		}
	}
	row := t.Number(fmt.Sprintf("%s, training by max-num as the paper has it: %s", name, base.maxNumAt), w.MaxNum,
		base.maxNum, "%.2fx", "").In(name)
	for i := range all[1:] {
		row.Ablate(all[i+1].String(), found[i+1].maxNum, "%.2fx")
	}
	what := fmt.Sprintf("%s, training by max-size as the paper has it: %s", name, base.maxSizeAt)
	if w.MaxSizeAtLeast > 0 {
		row = t.Bound(what, "at least", w.MaxSizeAtLeast, base.maxSize)
	} else {
		row = t.Number(what, w.MaxSize, base.maxSize, "%.2fx", "").In(name)
	}
	for i := range all[1:] {
		row.Ablate(all[i+1].String(), found[i+1].maxSize, "%.2fx")
	}
}
