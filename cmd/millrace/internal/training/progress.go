package training

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/names"
	work "github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/trace"
)

// progress is one line on a terminal, and elsewhere a line of the log every few seconds.
type progress struct {
	to       *os.File // the terminal; nil: there is none
	steps    int
	bytes    float64        // of a checkpoint
	every    map[string]int // steps between two saves and two evaluations; 0: only at the end
	cost     map[string]float64
	work     work.Work
	done     int      // steps
	due      []string // behind the last step, not begun
	last     time.Time
	recent   []report.StepTook // the last steps
	batch    int               // samples of a step
	shown    string            // of them
	live     bool              // a line is on the screen that the next one is drawn over
	interval time.Duration
}

// What a training may be doing.
const (
	stepping   = "step"
	saving     = "saving"
	evaluating = "evaluating"
	drawing    = "drawing the report"
)

// saves is between which seconds a save of so many bytes takes, before one was seen: what disks are like, idle and
// busy.
func saves(bytes float64) *work.Within {
	return &work.Within{Least: 0.002 + bytes/3e9, Most: 0.5 + bytes/5e7}
}

// draws is between which seconds it takes to draw a run of so many steps, whatever the machine does besides: page and
// Timeline of runs of few steps, and a line of each step.
func draws(steps int) *work.Within {
	return &work.Within{Least: 0.1 + 1e-5*float64(steps), Most: 1 + 1e-4*float64(steps)}
}

// newProgress is that of a run. What an evaluation takes is guessed at first, from its rows, which have no backward.
func newProgress(to *os.File, c *run.Config) *progress {
	p := &progress{steps: c.Train.Steps, interval: 5 * time.Second, every: map[string]int{},
		cost: map[string]float64{stepping: 1, saving: .5}}
	if c.Plan != nil {
		p.batch = c.Plan.StepSamples()
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

// isDue says whether something is done behind so many steps.
func (p *progress) isDue(what string, done int) bool {
	every, known := p.every[what]
	return known && (done == p.steps || every > 0 && done%every == 0)
}

// times is how often something is still to be done, after the steps that are done.
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

// piece is work of a kind, so many times.
func (p *progress) piece(kind string, times int) work.Piece {
	one := work.Piece{What: kind, Kind: kind, Group: kind, Cost: p.cost[kind], Times: times}
	switch kind {
	case drawing:
		one.Within = draws(p.steps)
	case saving:
		one.Within = saves(p.bytes)
	}
	return one
}

// did says that what was under way is done, at a time, and what is left behind so many steps: next is what is begun.
func (p *progress) did(now time.Time, done int) (next string) {
	p.work.End(now)
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
	p.work.Begin(now, p.piece(next, 1))
	return next
}

// behind says that what was due behind the last step is done, a save or an evaluation.
func (p *progress) behind() {
	now := time.Now()
	if next := p.did(now, p.done); p.apart(next) {
		p.draw(p.shown + p.rest(now, next) + p.pace())
	}
}

// apart says whether a terminal says at once that something begins: what is no step may take far longer than one.
func (p *progress) apart(next string) bool { return p.to != nil && next != stepping && next != "" }

// rest is the end of the line: what is done now if it is not a step, and the time left.
func (p *progress) rest(now time.Time, next string) (text string) {
	if p.apart(next) || next != "" && p.done == p.steps {
		text = "  " + next
	}
	if state := p.work.At(now); state.Honest && p.done < p.steps {
		text += "  " + cli.Left(state.Left)
	}
	return text
}

// left is the range of seconds that are left, least and most; nil where the line shows no time left.
func (p *progress) left(now time.Time) []float64 {
	state := p.work.At(now)
	if !state.Honest || p.done == p.steps {
		return nil
	}
	return []float64{state.Least.Seconds(), state.Most.Seconds()}
}

// step says how far a run is, and who is a straggler.
func (p *progress) step(s run.StepReport, stragglers map[int]float64) {
	now := time.Now()
	p.done = trace.StepNumber(s.Step)
	p.keep(s)
	p.due = slices.DeleteFunc([]string{saving, evaluating}, func(kind string) bool { return !p.isDue(kind, p.done) })
	next := p.did(now, p.done)
	if now.Sub(p.last) < p.interval && p.done < p.steps && !p.apart(next) {
		return
	}
	p.last = now
	p.shown = fmt.Sprintf("step %s/%s  loss %s", terminal.Whole(p.done), terminal.Whole(p.steps), terminal.Loss(s.Loss))
	line := p.shown + p.rest(now, next) // what a narrow terminal cuts comes last
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

// keep notes what a step took.
func (p *progress) keep(s run.StepReport) {
	took := report.StepTook{Step: s.Step, S: s.Seconds}
	for _, did := range s.Workers {
		took.BusyS = append(took.BusyS, did.BusyS)
	}
	if p.recent = append(p.recent, took); len(p.recent) > 2*report.Recent {
		p.recent = slices.Delete(p.recent, 0, report.Recent)
	}
}

// pace is the numbers of the last steps, as a live page has them.
func (p *progress) pace() (text string) {
	rows, _, err := report.CompareRecent(report.Inputs{Took: p.recent, Batch: p.batch})
	if err != nil {
		return ""
	}
	for i := range rows {
		switch c := &rows[i]; c.Unit {
		case report.UnitPerSecond:
			text += fmt.Sprintf("  %s samples/s", c.Unit.Format(*c.Measured))
		case report.UnitPart:
			text += fmt.Sprintf("  bubble %s", c.Unit.Format(*c.Measured))
		}
	}
	if n := min(len(p.recent), report.Recent); n > 1 && text != "" {
		text += fmt.Sprintf(" over %d steps", n)
	}
	return text
}

// say keeps a line; about is what a record of it has besides.
func (p *progress) say(line string, about ...any) {
	if p.to == nil {
		cli.Say(line, about...)
		return
	}
	fmt.Fprint(p.to, "\r\x1b[K"+cli.FitLines(p.to, "", names.Shown(line))+"\n") // whole, however long: it stays
	p.live = false
}

// summed says whether the end of the run will say what there is to say after so many steps. They are the last ones
// or, of a save, those that it was stopped behind: on a terminal it would stand there twice.
func (p *progress) summed(what string, steps int) bool {
	return p.to != nil && (steps == p.steps || what == saving && !p.isDue(saving, steps))
}

// draw draws a line over the live one.
func (p *progress) draw(line string) {
	cli.DrawLine(p.to, line)
	p.live = true
}

// end leaves the live line as it is.
func (p *progress) end() {
	if p != nil && p.live {
		fmt.Fprintln(p.to)
		p.live = false
	}
}
