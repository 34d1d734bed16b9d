package run

import (
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/trace"
)

// trace asks all processes for their record of a complete step, if WantsTrace asks for it and no earlier answer is
// missing.
func (l *leader) trace(step int) {
	h := &l.config.Hooks
	if h.WantsTrace == nil || h.OnTrace == nil || l.state.Showing() || !h.WantsTrace(step) {
		return
	}
	l.tell(l.state.Show(control.Show{Step: step, Around: l.job.Timeline().Stream}))
}

// show takes a process's record of a step. After the last process's record it calls OnTrace, unless a process could not
// send its record.
func (l *leader) show(from int, s control.Shown) {
	l.peers.shown[from] = s.Timeline
	if l.state.Showing() {
		return
	}
	empty := l.job.Timeline()
	l.placed(&empty)
	empty.PeakBytes = slices.Clone(l.progress.PeakBytes)
	mark, known := l.progress.Mark(s.Step)
	parts := []*trace.Timeline{&empty}
	now := l.peers.sinceS(time.Now())
	for p, t := range l.peers.shown {
		if t == nil {
			known = false
			continue
		}
		offsetS, drift, _ := l.peers.clocks[p].Line(now)
		t.OnClock(offsetS, drift)
		parts = append(parts, t)
	}
	clear(l.peers.shown)
	if !known {
		return
	}
	hook := l.config.Hooks.OnTrace
	l.hooks.add(func() {
		merged, err := trace.Merge(parts...)
		if err != nil {
			return // invalid records were refused before
		}
		merged.Steps = []trace.StepMark{mark}
		hook(merged)
	})
}

// lateTimes is the multiple of the usual step time from which a step is late.
const lateTimes = 10

// overdue holds how long steps take, and how long the current one has taken.
type overdue struct {
	least time.Duration // a shorter step is not late
	tick  *time.Ticker
	since time.Time // when the last step was complete or a Program began
	tookS []float64 // durations of the last steps, in seconds
	told  time.Duration
	asks  bool // the next answers to Beat are for OnLate
}

func newOverdue(least time.Duration) overdue {
	return overdue{least: least, tick: time.NewTicker(max(least/5, time.Millisecond))}
}

// begin notes that a Program begins.
func (n *overdue) begin() { n.since, n.told, n.asks = time.Now(), 0, false }

// step notes that a step is complete.
func (n *overdue) step(tookS float64) {
	n.begin()
	if n.tookS = append(n.tookS, tookS); len(n.tookS) > 16 {
		n.tookS = n.tookS[1:]
	}
}

// by returns how long the current step has taken and how long steps usually take. `is` reports whether the step is
// late.
func (n *overdue) by(now time.Time) (late, usual time.Duration, is bool) {
	if len(n.tookS) < 3 {
		return 0, 0, false
	}
	late = now.Sub(n.since)
	usual = time.Duration(stats.Median(n.tookS) * float64(time.Second))
	return late, usual, late >= max(n.least, lateTimes*usual, 2*n.told)
}

// askWhyLate asks the processes what their workers wait for, if the step is late and no question is open.
func (l *leader) askWhyLate() {
	if l.config.Hooks.OnLate == nil || !l.under.trains || !l.state.Under() || l.state.Asked() {
		return
	}
	if _, _, is := l.silence.late.by(time.Now()); is {
		l.silence.late.asks, l.silence.told = true, time.Now()
		l.tell(l.state.Beat())
	}
}

// tellLate reports which worker waits for which in a late step, once all processes have answered.
func (l *leader) tellLate() {
	late, usual, is := l.silence.late.by(time.Now())
	if !l.silence.late.asks || !is || !l.state.Under() {
		return
	}
	_, waits, _ := l.state.Quiet()
	stall, err := l.stall("", waits)
	if err != nil {
		l.fail(err)
		return
	}
	l.silence.late.told, l.silence.late.asks = late, false
	hook, chain := l.config.Hooks.OnLate, told(stall)
	l.hooks.add(func() { hook(late, usual, chain) })
}
