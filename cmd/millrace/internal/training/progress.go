package training

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/names"
	work "github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/trace"
)

// progress shows a run's progress: one live line on a terminal, else a log line every few seconds.
type progress struct {
	to       *os.File // the terminal; nil if there is none
	steps    int
	bytes    float64        // size of a checkpoint
	every    map[string]int // by kind (saving, evaluating): steps from one to the next; 0: only at the end
	cost     map[string]float64
	work     work.Work
	done     int      // steps done
	due      []string // work that is due after the newest step and has not begun
	last     time.Time
	recent   []report.StepTook // times of the last steps
	batch    int               // samples per step
	plan     *plan.Plan        // nil: unknown
	shown    string            // text about the last step
	live     bool              // a live line is on the screen
	tests    tests
	interval time.Duration
}

// These are the kinds of work in a training.
const (
	stepping   = "step"
	saving     = "saving"
	evaluating = "evaluating"
	drawing    = "drawing the report"
)

// saves returns bounds for the time that a save of this many bytes takes, in seconds. They apply until a save has been
// measured, and cover idle and busy disks.
func saves(bytes float64) *work.Within {
	return &work.Within{Least: 0.002 + bytes/3e9, Most: 0.5 + bytes/5e7}
}

// draws returns bounds for the time that it takes to draw a run of this many steps, in seconds. They cover fast and
// slow machines. A constant part is for the page and the Timeline, and another part grows with the steps.
func draws(steps int) *work.Within {
	return &work.Within{Least: 0.1 + 1e-5*float64(steps), Most: 1 + 1e-4*float64(steps)}
}

// newProgress returns a run's progress. An evaluation has no backward, so the first guess of its time is a third of the
// time that a step takes for the same number of samples.
func newProgress(to *os.File, c *run.Config) *progress {
	p := &progress{steps: c.Train.Steps, interval: 5 * time.Second, every: map[string]int{},
		cost: map[string]float64{stepping: 1, saving: .5}}
	if c.Plan != nil {
		p.plan, p.batch = c.Plan, c.Plan.StepSamples()
	}
	if c.Checkpoint.Dir != "" {
		p.every[saving] = c.Checkpoint.Every
		p.bytes = float64(4 * c.Model.ParameterElements() * int64(1+len(c.Train.Optimizer.States())))
	}
	if c.Data.Test != nil {
		rows := c.Data.Test.Len()
		if c.Train.EvalRows > 0 {
			rows = min(rows, c.Train.EvalRows)
		}
		p.every[evaluating], p.cost[evaluating] = c.Train.EvalEvery, float64(rows)/float64(3*c.Plan.StepSamples())
	}
	if cli.Draws(to) {
		p.to, p.interval = to, 100*time.Millisecond
	}
	return p
}

// isDue reports whether something is due after this many steps.
func (p *progress) isDue(what string, done int) bool {
	every, known := p.every[what]
	return known && (done == p.steps || every > 0 && done%every == 0)
}

// times returns how often work of a kind is still to be done after the first `done` steps.
func (p *progress) times(what string, done int) int {
	every, known := p.every[what]
	if !known || done >= p.steps {
		return 0
	}
	n := 1
	if every > 0 {
		n += (p.steps-1)/every - done/every
	}
	return n
}

// piece returns the piece of work for a kind of work that is done this many times.
func (p *progress) piece(kind string, times int) work.Piece {
	one := work.Piece{What: kind, Kind: kind, Group: kind, Cost: p.cost[kind], Times: times}
	switch kind {
	case drawing:
		one.Within = draws(p.steps)
	case saving:
		one.Within = saves(p.bytes)
	case evaluating:
		one.Far = p.tests.far
	}
	return one
}

// did records that the current work has ended, and plans the rest after `done` steps. It returns the kind of work that
// begins next.
func (p *progress) did(now time.Time, done int) (next string) {
	p.work.End(now)
	p.tests.ended(now, p.every[evaluating])
	left := []work.Piece{p.piece(stepping, p.steps-done)}
	for _, kind := range []string{saving, evaluating} {
		n := p.times(kind, done)
		if slices.Contains(p.due, kind) {
			n++
		}
		if n > 0 {
			left = append(left, p.piece(kind, n))
		}
	}
	if done == p.steps {
		left = left[1:]
	}
	p.work.Plan(now, "training", append(left, p.piece(drawing, 1))...)
	switch {
	case len(p.due) > 0:
		next, p.due = p.due[0], p.due[1:]
	case done < p.steps:
		next = stepping
	default:
		return ""
	}
	p.tests.begins(now, next, p.shown)
	p.work.Begin(now, p.piece(next, 1))
	return next
}

// behind records that a save or an evaluation between two steps, or after all steps, has ended.
func (p *progress) behind() {
	now := time.Now()
	next := p.did(now, p.done)
	if text := p.tests.advice; text != "" && p.done < p.steps {
		p.tests.advice, p.tests.advised = "", true
		p.say(text)
	}
	if p.apart(next) || p.live && next == "" { // after the last work, the line must not name it any more
		p.draw(p.shown + p.rest(now, next) + p.pace())
	} else if next == evaluating && p.done == p.steps { // without a terminal, no later step shows that the run goes on
		cli.Say(evaluating)
	}
}

// apart reports whether a terminal must show at once that this work begins, because it may take far longer than a
// step.
func (p *progress) apart(next string) bool { return p.to != nil && next != stepping && next != "" }

// rest returns the end of the line: the current work if it is not a step, and the time left.
func (p *progress) rest(now time.Time, next string) (text string) {
	if p.apart(next) || next != "" && p.done == p.steps {
		text = "  " + next
	}
	if state := p.work.At(now); state.Honest && p.done < p.steps {
		text += "  " + cli.Left(state.Least, state.Most)
	}
	return text
}

// left returns bounds of the remaining time in seconds; nil if the line shows no time left.
func (p *progress) left(now time.Time) []float64 {
	state := p.work.At(now)
	if !state.Honest || p.done == p.steps {
		return nil
	}
	return []float64{state.Least.Seconds(), state.Most.Seconds()}
}

// step shows the progress after a step, and the stragglers.
func (p *progress) step(s run.StepReport, stragglers map[int]float64) {
	now := time.Now()
	p.done = trace.StepNumber(s.Step)
	p.keep(s)
	p.due = slices.DeleteFunc([]string{saving, evaluating}, func(kind string) bool { return !p.isDue(kind, p.done) })
	p.shown = fmt.Sprintf("step %s/%s  loss %s", terminal.Whole(p.done), terminal.Whole(p.steps), terminal.Loss(s.Loss))
	next := p.did(now, p.done)
	if now.Sub(p.last) < p.interval && p.done < p.steps && !p.apart(next) {
		return
	}
	p.last = now
	line := p.shown + p.rest(now, next) // the part that a narrow terminal cuts off comes last
	about := []any{"step", p.done, "steps", p.steps, "loss", s.Loss, "samples_per_s", s.SamplesPerSecond, "step_s",
		s.Seconds, "bubble", s.Bubble}
	if state := p.work.At(now); state.Honest {
		about = append(about, "eta_s", state.Left.Seconds())
	}
	if len(stragglers) > 0 {
		who := slices.Sorted(maps.Keys(stragglers))
		line += "  straggling"
		for _, w := range who {
			line += fmt.Sprintf(" w%d", w)
		}
		about = append(about, "stragglers", who)
	}
	line += p.pace()
	if p.to == nil {
		cli.Say(line, about...)
		return
	}
	p.draw(line)
}

// keep records the time of a step.
func (p *progress) keep(s run.StepReport) {
	took := report.StepTook{Step: s.Step, S: s.Seconds}
	for _, did := range s.Workers {
		took.BusyS = append(took.BusyS, did.BusyS)
	}
	if p.recent = append(p.recent, took); len(p.recent) > 2*report.Recent {
		p.recent = slices.Delete(p.recent, 0, report.Recent)
	}
}

// pace returns the numbers of the last steps, as on the live page.
func (p *progress) pace() (text string) {
	rows, _, err := report.CompareRecent(report.Inputs{Plan: p.plan, Took: p.recent, Batch: p.batch})
	if err != nil {
		return ""
	}
	for i := range rows {
		switch c := &rows[i]; {
		case c.Measured == nil:
		case c.Unit == report.UnitPerSecond:
			text += fmt.Sprintf("  %s samples/s", c.Unit.Format(*c.Measured))
		case c.Unit == report.UnitPart:
			text += fmt.Sprintf("  bubble %s", c.Unit.Format(*c.Measured))
		}
	}
	if n := min(len(p.recent), report.Recent); n > 1 && text != "" {
		text += fmt.Sprintf(" over %d steps", n)
	}
	return text
}

// say prints a line that stays on the screen. `about` holds attributes of its log record.
func (p *progress) say(line string, about ...any) {
	if p.to == nil {
		cli.Say(line, about...)
		return
	}
	fmt.Fprint(p.to, "\r\x1b[K"+cli.FitLines(p.to, "", names.Shown(line))+"\n") // a line that stays is not cut
	p.live = false
}

// summed reports whether a terminal need not show what was done after this many steps. That is so if the output at the
// end of the run repeats it. Without a terminal it returns false.
func (p *progress) summed(what string, steps int) bool {
	return p.to != nil && (steps == p.steps || what == saving && !p.isDue(saving, steps))
}

// draw draws a line in place of the live line.
func (p *progress) draw(line string) {
	cli.DrawLine(p.to, line)
	p.live = true
}

// end keeps the last live line on the screen.
func (p *progress) end() {
	if p != nil && p.live {
		fmt.Fprintln(p.to)
		p.live = false
	}
}

// tests follows the evaluations of a run: how far the current one is, and whether an evaluation takes longer than the
// steps between two evaluations.
type tests struct {
	part  atomic.Uint64          // part of the current evaluation that is done, as math.Float64bits
	told  atomic.Int64           // when `part` was last shown, in Unix nanoseconds
	line  atomic.Pointer[string] // text in front of the evaluation's progress; nil: no evaluation
	now   string                 // kind of the current work
	since time.Time              // when the current work began

	steps   int     // steps of this process since the last evaluation, without those of unknown duration
	stepsS  float64 // seconds that these steps took
	advice  string  // text to be printed if evaluations take longer than the steps between them
	advised bool
}

// longS is the duration of an evaluation, in seconds, up to which no advice is given.
const longS = 2

// far returns the completed part of the current evaluation.
func (t *tests) far() float64 { return math.Float64frombits(t.part.Load()) }

// begins records that work of a kind begins.
func (t *tests) begins(now time.Time, kind, line string) {
	t.now, t.since = kind, now
	t.part.Store(0)
	t.told.Store(now.UnixNano())
	if t.line.Store(nil); kind == evaluating {
		t.line.Store(&line)
	}
}

// ended records that the current work has ended. `every` is the number of steps between evaluations. If it is 0, the
// only evaluation is at the end of the run.
func (t *tests) ended(now time.Time, every int) {
	took := now.Sub(t.since).Seconds()
	switch {
	case t.since.IsZero(): // the first step of a process, whose beginning is not known
	case t.now == stepping:
		t.steps++
		t.stepsS += took
	case t.now == evaluating:
		t.advise(took, every)
		t.steps, t.stepsS = 0, 0
	}
	t.since = time.Time{}
}

// advise advises rarer evaluations if one takes longer than all steps of an interval. It advises nothing after a
// shortened interval, such as the first one after a resume. A whole interval has `every` timed steps, or one fewer,
// because a process's first step is not timed.
func (t *tests) advise(took float64, every int) {
	if every <= 0 || t.steps < max(1, every-1) || t.stepsS == 0 || t.advised {
		return
	}
	if interval := t.stepsS / float64(t.steps) * float64(every); took > max(interval, longS) {
		t.advice = fmt.Sprintf("an evaluation takes %s, longer than %s before it (%s): --eval-every %d, or fewer "+
			"--eval-rows, leaves more time to train", terminal.Duration(took), stepsBefore(t.steps),
			terminal.Duration(t.stepsS), every*int(math.Ceil(took/interval)))
	}
}

func stepsBefore(n int) string {
	if n == 1 {
		return "the step"
	}
	return "the " + terminal.Count(n, "step")
}

// tested shows how far an evaluation is. Workers call it.
func (p *progress) tested(done, of int) {
	t, now := &p.tests, time.Now()
	t.part.Store(math.Float64bits(float64(done) / float64(of)))
	last, before := t.told.Load(), t.line.Load()
	if before == nil || now.UnixNano()-last < int64(p.interval) || done == of ||
		!t.told.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	line := fmt.Sprintf("%s %d %%", evaluating, 100*done/of)
	if state := p.work.At(now); state.Honest {
		line += "  " + cli.Left(state.Least, state.Most)
	}
	if p.to == nil {
		cli.Say(line)
		return
	}
	if t.line.Load() == before { // if it differs, the evaluation has ended
		cli.DrawLine(p.to, *before+"  "+line)
	}
}
