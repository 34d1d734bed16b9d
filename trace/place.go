package trace

import "fmt"

// OnClock puts all times, of a process with a clock of its own, on another: t becomes t (1 + drift) + offsetS.
// What was not before something else on the one clock is not on the other.
func (t *Timeline) OnClock(offsetS, drift float64) {
	pace := 1 + drift
	for i := range t.Events {
		e := &t.Events[i]
		e.ReadyS, e.StartS, e.EndS = e.ReadyS*pace+offsetS, e.StartS*pace+offsetS, e.EndS*pace+offsetS
	}
	for i := range t.Memory {
		t.Memory[i].AtS = t.Memory[i].AtS*pace + offsetS
	}
	for i := range t.Steps {
		t.Steps[i].StartS, t.Steps[i].EndS = t.Steps[i].StartS*pace+offsetS, t.Steps[i].EndS*pace+offsetS
	}
}

// Process is that of a worker, by number; 0 where the Timeline does not say.
func (t *Timeline) Process(worker int) int {
	if len(t.Places) == 0 {
		return 0
	}
	return t.Places[worker].Process
}

// Where is where a worker was: "rank 1 on host b", or nothing where there is one process and no name of a host.
func (t *Timeline) Where(worker int) string {
	if len(t.Places) == 0 {
		return ""
	}
	return t.NameOf(t.Places[worker].Process)
}

// NameOf is what to call a process.
func (t *Timeline) NameOf(process int) string {
	host := t.Processes[process].Host
	switch {
	case host == "" && len(t.Processes) == 1:
		return ""
	case host == "":
		return fmt.Sprintf("rank %d", process)
	}
	return fmt.Sprintf("rank %d on host %s", process, host)
}

// WithinS is the most by which times of two workers may be wrong beside each other: no order of events that are
// nearer can be claimed. It is 0 in one process, which has one clock.
func (t *Timeline) WithinS(a, b int) float64 {
	if one, other := t.Process(a), t.Process(b); one != other {
		return t.Processes[one].ErrorS + t.Processes[other].ErrorS
	}
	return 0
}

// ErrorS is the largest error, in seconds, of the difference between times on any two workers.
func (t *Timeline) ErrorS() float64 {
	most, second := 0.0, 0.0
	for _, p := range t.Processes {
		switch {
		case p.ErrorS > most:
			most, second = p.ErrorS, most
		case p.ErrorS > second:
			second = p.ErrorS
		}
	}
	return most + second
}
