package run

import (
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/trace"
)

// readings is how often each clock is read in a row, so that at least one reading is answered quickly.
const readings = 8

// sinceS converts t to seconds on the leader's clock.
func (p *peers) sinceS(t time.Time) float64 { return t.Sub(p.began).Seconds() }

// readClocks asks all processes for the time on their clocks. It does nothing with one process or after a failure.
func (l *leader) readClocks() {
	if len(l.peers.links) == 1 || !l.state.Ready() {
		return
	}
	for range readings {
		for l.state.Asked() {
			l.await()
		}
		l.silence.told = time.Now()
		l.tell(l.state.Beat())
	}
	for l.state.Asked() {
		l.await()
	}
}

// placed writes the processes and the place of each worker into a Timeline. It does nothing in a run of one process
// without host names.
func (l *leader) placed(t *trace.Timeline) {
	w := l.job.World
	if n := len(l.peers.links); n == 1 && w.Hosts == nil {
		return
	}
	t.Processes, t.Places = make([]trace.Process, len(l.peers.links)), make([]trace.Place, len(w.Workers))
	for k, at := range w.Workers {
		t.Places[k] = trace.Place{Process: at.Process, Device: at.Device}
	}
	now := l.peers.sinceS(time.Now())
	for i := range t.Processes {
		p := &t.Processes[i]
		p.Host = w.HostOf(i)
		p.OffsetS, p.Drift, p.ErrorS = l.peers.clocks[i].Line(now)
	}
}

// remark sets the start and end of each step from its events, if the Timeline has all computations of the step. During
// the run, the marks were computed from less exact clock readings. remark takes a step's computations to be complete if
// their durations add up to the busy times in Computed, which were counted during the run.
func remark(t *trace.Timeline) {
	of := map[int][]*trace.Event{}
	for i := range t.Events {
		if e := &t.Events[i]; trace.OfStep(e) {
			of[e.Step] = append(of[e.Step], e)
		}
	}
	for i := range t.Steps {
		m := &t.Steps[i]
		events, busy := of[m.Step], t.Computed[i].BusyS
		if len(events) == 0 {
			continue
		}
		missing := slices.Clone(busy)
		startS, endS := events[0].StartS, events[0].EndS
		for _, e := range events {
			missing[e.Worker] -= e.EndS - e.StartS
			startS, endS = min(startS, e.StartS), max(endS, e.EndS)
		}
		whole := true
		for w, s := range missing {
			whole = whole && math.Abs(s) <= busy[w]/1000 // not exactly 0, because the rates of clocks differ
		}
		if whole {
			m.StartS, m.EndS = startS, endS
		}
	}
}
