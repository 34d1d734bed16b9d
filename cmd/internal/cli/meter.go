package cli

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// Meter shows on stderr what a verb is doing, how far it is, and how long the rest will take. On a terminal it is one
// live line, with log lines above it. Otherwise it logs a line every few seconds, and in long work less often. It shows
// nothing if the log is for machines.
type Meter struct {
	verb string
	work progress.Work

	mu    sync.Mutex
	doing string // the activity to show if `work` names none
	shown bool   // a live line is on the screen

	stop, stopped chan struct{}
}

// These are the times of a Meter, and the width of its bar in columns.
const (
	meterSoon    = 400 * time.Millisecond // on a terminal, a verb that ends sooner shows nothing
	meterDraws   = 200 * time.Millisecond
	meterLogs    = 5 * time.Second // least time between lines of a log; later it is 1/meterLogPart of the time so far
	meterLogPart = 20
	meterBarWide = 20
)

// FirstLine is the time after which a Meter that does not draw on a terminal logs its first line. It is below a second
// so that users soon see something; shorter work needs no line. Tests make it long, so that their output does not
// depend on the speed of the machine.
var FirstLine = 700 * time.Millisecond

// live holds the Meter that may draw a live line. That line is cleared before a log line is written.
var live struct {
	sync.Mutex
	meter *Meter
}

// StartMeter begins to show a verb's progress. The caller must call Stop. If two Meters run, only the one that was
// started last draws on a terminal.
func StartMeter(verb string) *Meter {
	m := &Meter{verb: verb, doing: "starting", stop: make(chan struct{}), stopped: make(chan struct{})}
	live.Lock()
	live.meter = m
	live.Unlock()
	crash.Go(m.run)
	return m
}

// Work returns the progress that the Meter shows. The verb fills it in.
func (m *Meter) Work() *progress.Work { return &m.work }

// Doing sets the text that is shown while Work names no activity.
func (m *Meter) Doing(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = what
}

// Stop ends the Meter and clears the live line. It may be called more than once.
func (m *Meter) Stop() {
	if m == nil {
		return
	}
	m.mu.Lock()
	select {
	case <-m.stop:
	default:
		close(m.stop)
	}
	m.mu.Unlock()
	<-m.stopped
	live.Lock()
	defer live.Unlock()
	if live.meter == m {
		live.meter = nil
	}
}

func (m *Meter) run() {
	defer close(m.stopped)
	defer m.clear()
	if Records() {
		<-m.stop
		return
	}
	draws := Draws(os.Stderr)
	every := meterDraws
	wait := time.NewTimer(meterSoon)
	if !draws {
		every = meterLogs
		wait.Reset(FirstLine)
	}
	defer wait.Stop()
	began := time.Now()
	for {
		select {
		case <-m.stop:
			return
		case <-wait.C:
		}
		line := m.line(time.Now(), draws)
		if !draws {
			slog.Info(line)
			every = max(meterLogs, time.Since(began)/meterLogPart)
		} else {
			m.draw(line)
		}
		wait.Reset(every)
	}
}

// draw draws the live line, replacing the previous one.
func (m *Meter) draw(line string) {
	live.Lock()
	defer live.Unlock()
	if live.meter != m {
		return
	}
	DrawLine(os.Stderr, line)
	m.mu.Lock()
	m.shown = true
	m.mu.Unlock()
}

func (m *Meter) clear() {
	live.Lock()
	defer live.Unlock()
	m.room()
}

// room clears the live line; the caller has locked live.
func (m *Meter) room() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown {
		m.shown = false
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// noMeter clears the live line and keeps its Meter from drawing another.
func noMeter() {
	live.Lock()
	defer live.Unlock()
	if live.meter != nil {
		live.meter.room()
		live.meter = nil
	}
}

// DrawLine draws a live line on a terminal in place of the previous one, cut so that it never wraps.
func DrawLine(w io.Writer, line string) {
	fmt.Fprint(w, "\r"+whole(names.Shown(line), terminal.Of(w).Columns-1)+"\x1b[K")
}

// whole drops parts from the end of a line until it fits. It cuts the first part if that alone is too wide. Two blanks
// separate parts.
func whole(line string, columns int) string {
	for terminal.Width(line) > columns {
		last := strings.LastIndex(line, "  ")
		if last <= 0 {
			break
		}
		line = line[:last]
	}
	return terminal.Clip(line, columns, "…")
}

// Aside calls the function `print`, which writes output, while no live line is on the screen.
func Aside(print func() error) error { return makeRoom(print) }

// makeRoom clears the live line, calls `write`, and prevents new live lines until `write` returns.
func makeRoom(write func() error) error {
	live.Lock()
	defer live.Unlock()
	if live.meter != nil {
		live.meter.room()
	}
	return write()
}

// line returns the text of the live line. If `bar` is false, it returns the text of a logged line.
func (m *Meter) line(now time.Time, bar bool) string {
	m.mu.Lock()
	doing := m.doing
	m.mu.Unlock()
	s := m.work.At(now)
	if s.What != "" {
		doing = s.What
	}
	line := m.verb + ": " + doing
	if s.Done > 0 {
		if bar {
			full := int(s.Done*meterBarWide + 0.5)
			line += "  " + strings.Repeat("━", full) + strings.Repeat("·", meterBarWide-full)
		}
		line += fmt.Sprintf("  %.0f %%", 100*s.Done)
	}
	if s.Honest {
		line += "  " + Left(s.Least, s.Most)
	}
	return line
}

// Left returns a remaining time in words, as a range. It rounds the lower end down and the upper end up. If both ends
// are then equal, the text names just this number. If the lower end is 0, the text names only the upper end.
func Left(least, most time.Duration) string {
	unit, each, step := "s", 1.0, 1.0
	switch s := most.Seconds(); {
	case s >= 90*60:
		unit, each, step = "h", 3600, 0.5
	case s >= 90:
		unit, each, step = "min", 60, 0.5
	}
	low, high := least.Seconds()/each, most.Seconds()/each
	if high >= 10 {
		step = 5
	}
	low, high = step*math.Floor(low/step), step*math.Ceil(high/step)
	switch {
	case low == high:
		return fmt.Sprintf("about %v %s left", low, unit)
	case low == 0:
		return fmt.Sprintf("at most %v %s left", high, unit)
	}
	return fmt.Sprintf("%v to %v %s left", low, high, unit)
}
