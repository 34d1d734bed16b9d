package run

import (
	"cmp"
	"fmt"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
)

// lead runs Programs until the last step is done or the run is to stop.
func (l *leader) lead() error {
	c := l.config
	if err := cmp.Or(l.open(), c.CheckRows(l.done), c.checkReplay(l.done)); err != nil {
		return err
	}
	if l.done == c.Train.Steps {
		return l.finishOnly()
	}
	for l.done < c.Train.Steps && !l.stopped {
		if err := l.trainTo(c.boundary(l.done)); err != nil {
			return err
		}
		last := l.done == c.Train.Steps || l.stopped
		if c.Checkpoint.Dir != "" && l.saves.at != l.done && (last || divides(c.Checkpoint.Every, l.done)) {
			if err := l.save(); err != nil {
				return err
			}
		}
		if c.Data.Test != nil && !l.stopped && (last || divides(c.Train.EvalEvery, l.done)) {
			if err := l.evaluate(); err != nil {
				return err
			}
		}
	}
	return nil
}

func divides(every, n int) bool { return every > 0 && n%every == 0 }

// trainTo runs Programs until `end` steps are done or the run is to stop.
func (l *leader) trainTo(end int) error {
	f, _ := family.Lookup(l.config.Plan.Schedule) // a schedule of no family is refused by next
	long := end-l.done > l.config.longest
	for l.done < end && !l.stopped {
		steps := min(end-l.done, l.span)
		if l.config.Next == nil {
			long = long || end-l.done > l.span
			steps = rowOf(f, end-l.done, l.span, long)
		}
		p, err := l.next(steps)
		if err != nil {
			return err
		}
		if err := l.begin(); err != nil {
			return err
		}
		if l.isToStop() {
			l.stopped = true
			return nil
		}
		steps, err = l.execute(p, func(text string, slots int) control.Body {
			return control.Load{Program: text, Base: l.done, Slots: slots, Run: l.saves.run}
		})
		if err == nil {
			err = l.sealAll()
		}
		l.done += steps
		if p.ValidatesLater() && steps < p.Minibatches() {
			l.span = max(leastRepeat, l.span/4)
		} else {
			l.span = min(l.config.longest, 2*l.span)
		}
		if err != nil {
			return err
		}
		l.stopped = l.isToStop() && l.done < l.config.Train.Steps
	}
	return nil
}

// isToStop reports whether no further step may begin.
func (l *leader) isToStop() bool {
	select {
	case <-l.stop:
		l.stop, l.stopping = nil, true
	default:
	}
	return l.stopping
}

// maxRepeat bounds the steps of one Program, so that micro-batch ids stay small.
const maxRepeat = 4096

// maxUnrolled bounds the instructions of a stream's Program, except under asp. With ByStage, which asp does not have, a
// worker's list does not repeat its steps by a count. It has each step's instructions, so that saves can stand between
// them.
const maxUnrolled = 1 << 20

// longest returns the most steps that one Program may have; p is the shortest Program. The plan's family trains this
// number. If possible it is a multiple of the steps that one update covers, because each Program begins with a new
// group. Only ByStage needs the limit of instructions. It applies to every stream, so that Programs end at the same
// steps with and without ByStage, and saving does not change what the run computes.
func longest(p *schedule.Program, most int) int {
	if p.Streams() && !p.HasReference() && !p.Served() {
		each := 0
		for w := range p.Workers {
			p.Walk(w, func(schedule.Instruction) bool { each++; return true })
		}
		most = min(most, maxUnrolled*max(1, p.Minibatches())/each)
	}
	f, err := family.Lookup(p.Name) // which generated p
	if err != nil {
		f = family.Family{}
	}
	unit := p.StopUnit()
	if n := max((max(1, f.Least)-1)/unit+1, most/unit) * unit; f.Trains(n) {
		return n
	}
	return f.Longest(most)
}

// leastRepeat is the least number of steps of a Program if updates are often taken back. Each rollback skips the rest
// of a Program, so short Programs lose less. But each Program begins with an empty pipeline, so it should have more
// than one step.
const leastRepeat = 4

// next returns the Program of the next steps.
func (l *leader) next(steps int) (*schedule.Program, error) {
	c := l.config
	if c.Next == nil {
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, steps)
		if err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
		if c.Train.Replay != nil || c.Train.ReplaySeen != nil {
			if p, err = c.replayed(p, l.done); err != nil {
				return nil, fmt.Errorf("run: %w", err)
			}
		}
		if err := c.runnable(p); err != nil {
			return nil, err
		}
		return l.saving(p)
	}
	p, err := c.Next(l.timeline(), steps)
	if err != nil {
		return nil, fmt.Errorf("run: the next program: %w", err)
	}
	return p, l.checkProgram(p, steps)
}

// replayed puts the updates of a Program in the order of Train.Replay or ReplaySeen. `from` is the Program's first
// step.
func (c Config) replayed(p *schedule.Program, from int) (*schedule.Program, error) {
	if p.Beside() {
		seen, err := c.seen(from, from+p.Minibatches())
		if err != nil {
			return nil, err
		}
		return lower.Averaged(p, seen)
	}
	order, err := c.recorded(from, from+p.Minibatches())
	if err != nil {
		return nil, err
	}
	return lower.Recorded(p, order)
}

// checkReplay returns an error if this run's Programs cannot repeat the recorded updates. These may not be divided at
// the steps where the Programs end. `done` is as in CheckRows.
func (c Config) checkReplay(done int) error {
	if c.Train.Replay == nil && c.Train.ReplaySeen == nil {
		return nil
	}
	f, err := family.Lookup(c.Plan.Schedule)
	if err != nil {
		return err
	}
	for from, end := range c.rows(f, done) {
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, end-from)
		if err == nil {
			_, err = c.replayed(p, from)
		}
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
	}
	return nil
}

// seen returns the entries of Config.Train.ReplaySeen for the steps of a Program. In the result, steps and versions
// count from the Program's first step.
func (c Config) seen(from, end int) (all []schedule.Seen, err error) {
	for _, s := range c.Train.ReplaySeen {
		switch {
		case s.Step < from || s.Step >= end:
		case s.Version < from:
			return nil, fmt.Errorf("the order to replay goes on across step %d, behind which this run saves, evaluates or "+
				"begins: pipeline %d saw the reference of %d updates in step %d; evaluate and save as often as the run "+
				"that it is of", from, s.Pipeline, s.Version, trace.StepNumber(s.Step))
		default:
			all = append(all, schedule.Seen{Pipeline: s.Pipeline, Stage: s.Stage, Minibatch: s.Step - from,
				Version: s.Version - from})
		}
	}
	return all, nil
}

// recorded returns the entries of Config.Train.Replay for the steps of a Program. In the result, steps and versions
// count from the Program's first step.
func (c Config) recorded(from, end int) ([]schedule.Applied, error) {
	all := c.Train.Replay
	first := 0 // the smallest step in the record, which has all steps from there on
	for i, a := range all {
		if i == 0 || a.Step < first {
			first = a.Step
		}
	}
	if from < first || end > first+len(all) {
		return nil, fmt.Errorf("the order to replay has steps %d to %d; this run does steps %d to %d",
			trace.StepNumber(first), first+len(all), trace.StepNumber(from), end)
	}
	var order []schedule.Applied
	for _, a := range all[from-first : end-first] {
		if a.Step < from || a.Step >= end || a.Version < from {
			return nil, fmt.Errorf("the order to replay goes on across steps %d to %d, around which this run saves, evaluates "+
				"or ends: the update of step %d goes by weights of %d updates; evaluate and save as often as the run that it is of",
				trace.StepNumber(from), end, trace.StepNumber(a.Step), a.Version)
		}
		order = append(order, schedule.Applied{Minibatch: a.Step - from, Version: a.Version - from})
	}
	return order, nil
}

// checkProgram returns an error for a Program that does not fit this run.
func (l *leader) checkProgram(p *schedule.Program, steps int) error {
	c := l.config
	switch {
	case p.Stages != len(c.Plan.Stages) || len(p.Placement) != l.job.Models() || !p.Elastic.Same(c.Plan.Elastic):
		return fmt.Errorf("run: program %s has %d stages in %d pipelines; the plan has %d in %d, with the same elastic "+
			"averaging", p.Name, p.Stages, len(p.Placement), len(c.Plan.Stages), l.job.Models())
	case p.Period < 1 || p.MicroBatches != p.Period*c.Plan.MicroBatches:
		return fmt.Errorf("run: program %s has %d micro-batches in %d steps; the plan has %d in each", p.Name,
			p.MicroBatches, p.Period, c.Plan.MicroBatches)
	case p.Minibatches() < 1 || p.Minibatches() > steps:
		return fmt.Errorf("run: program %s is %d steps long; 1 to %d are due", p.Name, p.Minibatches(), steps)
	case p.Clip != (c.Train.Clip > 0):
		return fmt.Errorf("run: program %s says clip: %v; the limit of the gradient norm is %v", p.Name, p.Clip, c.Train.Clip)
	}
	return c.runnable(p)
}

// partsOf returns how many processes have a part of each step of an asp Program: the process of the step's trainer, and
// the process of the server. They may be the same process.
func (l *leader) partsOf(p *schedule.Program) func(step int) int {
	base, at := l.done, map[int]int{}
	for process, workers := range l.job.World.WorkersOf() {
		for _, w := range workers {
			at[w] = process
		}
	}
	return func(step int) int {
		trainer := p.TrainerOf(schedule.Instruction{Micro: int32(step - base)})
		if at[p.WorkerOf(0, 0, trainer)] == at[p.WorkerOf(1, 0, 0)] {
			return 1
		}
		return 2
	}
}

// finishOnly handles a run that resumes from a checkpoint with all steps. The earlier run may have been killed before
// it could evaluate and report. If this run has another checkpoint directory, finishOnly saves there. Then it
// evaluates.
func (l *leader) finishOnly() error {
	c := l.config
	if err := l.begin(); err != nil {
		return err
	}
	l.saves.last = l.job.From.Path
	if c.Checkpoint.Dir != "" && !l.job.Store.Has(l.job.From) {
		if err := l.save(); err != nil {
			return err
		}
	}
	if c.Data.Test == nil {
		return nil
	}
	return l.evaluate()
}

// begin calls Config.Begin once, before the first step, and then tidies the checkpoint folders.
func (l *leader) begin() error {
	if l.begun {
		return nil
	}
	l.begun = true
	if begin := l.config.Begin; begin != nil {
		if err := begin(); err != nil {
			return err
		}
	}
	return l.tidy()
}

// evaluate runs the test data through the stages.
func (l *leader) evaluate() error {
	l.tests.results, l.tests.apart = make([]control.Tested, l.job.TestMicros()), 0
	p, err := programs.Evaluation(l.job.Shown(), len(l.tests.results))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if _, err := l.execute(p, func(text string, slots int) control.Body {
		return control.Evaluate{Program: text, Base: l.done, Slots: slots}
	}); err != nil {
		return err
	}
	e, err := l.verdict()
	if err != nil {
		return err
	}
	l.tests.all = append(l.tests.all, e)
	if f := l.config.Hooks.OnEvaluation; f != nil {
		l.hooks.add(func() { f(e) })
	}
	return nil
}

// tested records a process's part of an evaluation.
func (l *leader) tested(r control.Result) error {
	l.tests.apart = max(l.tests.apart, r.Apart)
	for _, t := range r.Parts {
		if t.Index < 0 || t.Index >= len(l.tests.results) || t.Rows != l.job.TestRows(t.Index) {
			return fmt.Errorf("run: micro-batch %d of an evaluation has %d rows; it has %d micro-batches", t.Index, t.Rows,
				len(l.tests.results))
		}
		if want := len(l.job.Model.Reported()); len(t.Reported) != want {
			return fmt.Errorf("run: micro-batch %d of an evaluation reports %d numbers; the model has %d", t.Index,
				len(t.Reported), want)
		}
		l.tests.results[t.Index] = t
	}
	return nil
}

// verdict returns the evaluation over all micro-batches, summed in ascending order.
func (l *leader) verdict() (trace.Evaluation, error) {
	e := trace.Evaluation{Step: l.done - 1}
	perRow := 1
	for _, in := range l.job.Model.Inputs {
		if in.Name == l.job.Model.Target() {
			perRow = int(in.Elements())
		}
	}
	rows, predictions, correct := 0, 0, 0.0
	for i, t := range l.tests.results {
		if t.Rows == 0 {
			return e, fmt.Errorf("run: nobody has evaluated micro-batch %d", i)
		}
		rows += t.Rows
		e.Loss += t.Loss * float64(t.Rows)
		if t.Correct != nil {
			correct, predictions = correct+*t.Correct, predictions+t.Rows*perRow
		}
	}
	e.Loss /= float64(rows)
	e.Samples, e.Correct = predictions, int(correct)
	for i, name := range l.job.Model.Reported() {
		if e.Reported == nil {
			e.Reported = map[string]*float64{}
		}
		e.Reported[name] = l.reported(i, rows)
	}
	if l.job.Together() > 1 {
		e.Apart = new(l.tests.apart)
	}
	return e, nil
}

// reported returns the mean over all rows of number i that the model reports, or nil if one of its values was not
// finite.
func (l *leader) reported(i, rows int) *float64 {
	sum := 0.0
	for _, t := range l.tests.results {
		if t.Reported[i] == nil {
			return nil
		}
		sum += *t.Reported[i] * float64(t.Rows)
	}
	return new(sum / float64(rows))
}
