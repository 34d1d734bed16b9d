package run

import (
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/trace"
)

// readings is how often clocks are read at once: of a few questions one is answered quickly.
const readings = 8

// sinceS is a moment on the leader's clock.
func (p *peers) sinceS(t time.Time) float64 { return t.Sub(p.began).Seconds() }

// readClocks asks all processes for the time on their clocks, unless there is one alone or the run has failed.
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

// placed writes into a Timeline where its workers are, in a run that says so.
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

// remark puts the marks of steps whose computations are all in the Timeline where these are. While the run went on
// the marks were made by what was known of the clocks then. Computed has what each step has computed, as marked.
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
			whole = whole && math.Abs(s) <= busy[w]/1000 // clocks do not have quite the same pace
		}
		if whole {
			m.StartS, m.EndS = startS, endS
		}
	}
}
