package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// Meter shows on stderr what a verb is doing, how far it is, and how long the rest will take: on a terminal as one
// live line, elsewhere as a line of the log every few seconds. Where the log is for machines it shows nothing. What
// is logged meanwhile stands above the live line.
type Meter struct {
	verb string
	work progress.Work

	mu    sync.Mutex
	doing string // beside the work
	shown bool   // a live line is there

	stop, stopped chan struct{}
}

// How soon and how often a Meter shows something.
const (
	meterSoon    = 400 * time.Millisecond // verbs that are done by then show nothing
	meterDraws   = 200 * time.Millisecond
	meterLogs    = 5 * time.Second // and a part of the time that is over, so that hours are no thousands of lines
	meterLogPart = 20
	meterBarWide = 20
)

// FirstLine is how long a Meter waits with the first line of a log, so that something is said within a second: shorter
// work is not worth a line. Stories have it wait for long, so that they end alike on a machine that stands still for a
// while.
var FirstLine = 700 * time.Millisecond

// live is the Meter whose line is on the screen, which lines of the log make room for.
var live struct {
	sync.Mutex
	meter *Meter
}

// StartMeter begins to show a verb's progress. Whoever starts stops. Of two at once the later one is shown.
func StartMeter(verb string) *Meter {
	m := &Meter{verb: verb, doing: "starting", stop: make(chan struct{}), stopped: make(chan struct{})}
	live.Lock()
	live.meter = m
	live.Unlock()
	crash.Go(m.run)
	return m
}

// Work is what is shown once it says anything.
func (m *Meter) Work() *progress.Work { return &m.work }

// Doing says what is being done where Work does not say.
func (m *Meter) Doing(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = what
}

// Stop ends it, and takes the live line away. Twice is once.
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

// draw puts the live line on the screen, over the one that is there.
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

// clear takes the live line away.
func (m *Meter) clear() {
	live.Lock()
	defer live.Unlock()
	m.room()
}

// room takes the live line away; the caller holds live.
func (m *Meter) room() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown {
		m.shown = false
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// noMeter takes the live line away, and has none drawn any more.
func noMeter() {
	live.Lock()
	defer live.Unlock()
	if live.meter != nil {
		live.meter.room()
		live.meter = nil
	}
}

// DrawLine draws a live line on a terminal over the one that is there, cut so that it never wraps.
func DrawLine(w io.Writer, line string) {
	fmt.Fprint(w, "\r"+whole(names.Shown(line), terminal.Of(w).Columns-1)+"\x1b[K")
}

// whole keeps as many of a line's parts as there is room for, and at least some of the first. Two blanks separate
// parts.
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

// Aside has a verb print while its Meter shows how far it is.
func Aside(print func() error) error { return makeRoom(print) }

// makeRoom has what is written next begin at the left, and no live line drawn until it is written.
func makeRoom(write func() error) error {
	live.Lock()
	defer live.Unlock()
	if live.meter != nil {
		live.meter.room()
	}
	return write()
}

// line is how far the verb is.
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
		line += "  " + Left(s.Left)
	}
	return line
}

// Left is a time left in words: as many digits as an estimate has.
func Left(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 90:
		return fmt.Sprintf("about %.0f s left", s)
	case s < 90*60:
		return fmt.Sprintf("about %.0f min left", s/60)
	default:
		return fmt.Sprintf("about %.1f h left", s/3600)
	}
}
