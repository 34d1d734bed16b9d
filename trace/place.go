package trace

import "fmt"

// OnClock converts the times of events, samples and steps from a process's own clock to another clock. A time t becomes
// t (1 + drift) + offsetS. The order of events stays the same.
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

// Process returns the process of a worker, or 0 if the Timeline does not say.
func (t *Timeline) Process(worker int) int {
	if len(t.Places) == 0 {
		return 0
	}
	return t.Places[worker].Process
}

// Where says where a worker was, for instance "rank 1 on host b". It is "" if there is one process and no host name.
func (t *Timeline) Where(worker int) string {
	if len(t.Places) == 0 {
		return ""
	}
	return t.NameOf(t.Places[worker].Process)
}

// NameOf returns the name of a process, for use in texts. It is "" if there is one process and no host name.
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

// WithinS returns the largest possible error, in seconds, of the difference between times of two workers. If two events
// are closer than that, their order is unknown. The result is 0 within a process, which has one clock.
func (t *Timeline) WithinS(a, b int) float64 {
	if one, other := t.Process(a), t.Process(b); one != other {
		return t.Processes[one].ErrorS + t.Processes[other].ErrorS
	}
	return 0
}

// ErrorS returns the largest WithinS of any two workers.
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
