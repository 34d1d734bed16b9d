package training

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/run"
)

// progress is one line on a terminal, and elsewhere a line of the log every few seconds.
type progress struct {
	to       *os.File // the terminal; nil: there is none
	steps    int
	first    int // step this run began with; -1 before it
	began    time.Time
	last     time.Time
	live     bool // a line is on the screen that the next one is drawn over
	interval time.Duration
}

func newProgress(to *os.File, steps int) *progress {
	p := &progress{steps: steps, first: -1, interval: 5 * time.Second}
	if cli.Draws(to) {
		p.to, p.interval = to, 100*time.Millisecond
	}
	return p
}

// step says how far a run is, and who is a straggler.
func (p *progress) step(s run.StepReport, stragglers map[int]float64) {
	now := time.Now()
	if p.first < 0 {
		p.first, p.began = s.Step, now
	}
	done := s.Step + 1
	if now.Sub(p.last) < p.interval && done < p.steps {
		return
	}
	p.last = now
	left, rest := time.Duration(0), ""
	if n := s.Step - p.first; n > 0 && done < p.steps && 5*n >= p.steps-p.first {
		left = now.Sub(p.began) / time.Duration(n) * time.Duration(p.steps-done)
		rest = "  " + cli.Left(left)
	}
	line := fmt.Sprintf("step %d/%d  loss %.4f  %s samples/s  bubble %.1f %%", done, p.steps, s.Loss,
		terminal.Number(s.SamplesPerSecond, 4), 100*s.Bubble) + rest
	about := []any{"step", s.Step, "steps", p.steps, "loss", s.Loss, "samples_per_s", s.SamplesPerSecond, "step_s",
		s.Seconds, "bubble", s.Bubble, "eta_s", left.Seconds()}
	if len(stragglers) > 0 {
		who := slices.Sorted(maps.Keys(stragglers))
		line += "  straggling"
		for _, w := range who {
			line += fmt.Sprintf(" w%d", w)
		}
		about = append(about, "stragglers", who)
	}
	if p.to == nil {
		cli.Say(line, about...)
		return
	}
	p.draw(line)
}

// say keeps a line; about is what a record of it has besides.
func (p *progress) say(line string, about ...any) {
	if p.to == nil {
		cli.Say(line, about...)
		return
	}
	fmt.Fprintln(p.to, "\r"+names.Shown(line)+"\x1b[K") // whole, however long: it stays
	p.live = false
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
