package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
)

// MaxWorkers is the largest number of workers in a file. It keeps a short file from making Read allocate much memory.
const MaxWorkers = 1 << 20

// Validate returns an error that names a wrong field, with the field's value and what would be right.
func (t *Timeline) Validate() error {
	if t.Version != Version {
		return fmt.Errorf("trace: version is %d, this millrace reads version %d", t.Version, Version)
	}
	if t.Workers < 1 || t.Workers > MaxWorkers {
		return fmt.Errorf("trace: workers is %d, want 1 to %d", t.Workers, MaxWorkers)
	}
	if err := names.Check(t.Model); err != nil {
		return fmt.Errorf("trace: the model has %w", err)
	}
	if t.Stages < 0 || t.Cores < 0 || t.ThreadsPerWorker < 0 {
		return fmt.Errorf("trace: stages %d, cores %d, threads_per_worker %d: none may be negative", t.Stages, t.Cores,
			t.ThreadsPerWorker)
	}
	if err := errors.Join(t.checkPlaces(), t.checkPools(), t.checkRounded()); err != nil {
		return err
	}
	for i := range t.Events {
		if err := t.checkEvent(&t.Events[i]); err != nil {
			return fmt.Errorf("trace: events[%d] (%s): %w", i, t.Events[i].Instruction, err)
		}
	}
	return cmp.Or(t.checkMemory(), t.checkSteps(), t.checkEvaluations())
}

// checkMemory checks the memory samples and the peaks of each worker.
func (t *Timeline) checkMemory() error {
	for i, m := range t.Memory {
		switch {
		case m.Worker < 0 || m.Worker >= t.Workers:
			return fmt.Errorf("trace: memory[%d]: worker is %d, want 0 to %d", i, m.Worker, t.Workers-1)
		case !finite(m.AtS):
			return fmt.Errorf("trace: memory[%d]: at_s is %v, want a finite number of seconds", i, m.AtS)
		case m.Bytes < 0:
			return fmt.Errorf("trace: memory[%d]: bytes is %d, want 0 or more", i, m.Bytes)
		}
	}
	if n := len(t.PeakBytes); n != 0 && n != t.Workers {
		return fmt.Errorf("trace: peak_bytes has %d entries, want one for each of %d workers", n, t.Workers)
	}
	if n := len(t.PeakActivations); n != 0 && n != t.Workers {
		return fmt.Errorf("trace: peak_activations has %d entries, want one for each of %d workers", n, t.Workers)
	}
	return nil
}

// checkSteps checks the marks of steps, busy times, losses, stragglers, and what pipelines saw of their reference.
func (t *Timeline) checkSteps() error {
	for i, s := range t.Steps {
		if !finite(s.StartS) || !finite(s.EndS) || s.EndS < s.StartS {
			return fmt.Errorf("trace: steps[%d] (\"step\": %d) runs from %v s to %v s, want an end that is not before the "+
				"start", i, s.Step, s.StartS, s.EndS)
		}
	}
	for i, c := range t.Computed {
		if n := len(c.BusyS); n != t.Workers {
			return fmt.Errorf("trace: computed[%d] (\"step\": %d): busy_s has %d entries, want one for each of %d workers",
				i, c.Step, n, t.Workers)
		}
		for w, b := range c.BusyS {
			if !finite(b) || b < 0 {
				return fmt.Errorf("trace: computed[%d] (\"step\": %d): busy_s of worker %d is %v, want 0 or more seconds",
					i, c.Step, w, b)
			}
		}
	}
	for i, s := range t.Seen {
		if s.Stage < 0 || s.Pipeline < 0 || s.Version < 0 || s.Version > s.Step {
			return fmt.Errorf("trace: seen[%d] (\"step\": %d): pipeline %d on stage %d saw the reference of %d updates; want "+
				"numbers from 0, and no more updates than steps in front", i, s.Step, s.Pipeline, s.Stage, s.Version)
		}
	}
	for i, l := range t.Losses {
		if !finite(l.Value) {
			return fmt.Errorf("trace: losses[%d] (\"step\": %d) is %v, want a finite number", i, l.Step, l.Value)
		}
	}
	for i, s := range t.Stragglers {
		if s.Worker < 0 || s.Worker >= t.Workers || s.To < s.From || !finite(s.Times) || !finite(s.Others) {
			return fmt.Errorf("trace: stragglers[%d]: worker %d, from %d to %d, %v times its profile, others %v: want a "+
				"worker from 0 to %d, steps in order, and finite numbers", i, s.Worker, s.From, s.To, s.Times, s.Others,
				t.Workers-1)
		}
	}
	return nil
}

func (t *Timeline) checkEvaluations() error {
	for i, e := range t.Evaluations {
		if !finite(e.Loss) || e.Samples < 0 || e.Correct < 0 || e.Correct > e.Samples {
			return fmt.Errorf("trace: evaluations[%d] (\"step\": %d): loss %v, %d correct of %d samples: want a finite loss "+
				"and correct from 0 to samples", i, e.Step, e.Loss, e.Correct, e.Samples)
		}
		for name, v := range e.Reported {
			if v != nil && !finite(*v) {
				return fmt.Errorf("trace: evaluations[%d] (\"step\": %d): %.80q is %v: want a finite number or none", i, e.Step,
					name, *v)
			}
		}
	}
	return nil
}

// longestHost is the longest name of a host, in bytes, as in the domain name system.
const longestHost = 253

// CheckHost refuses a host name that is longer than longestHost or has invalid UTF-8, control characters or invisible
// characters.
func CheckHost(name string) error {
	if len(name) > longestHost || names.Shown(name) != name || strings.ContainsAny(name, "\n\t") {
		return fmt.Errorf("the host's name %.40q of %d bytes; want %d at most, none of which is obeyed and not shown", name,
			len(name), longestHost)
	}
	return nil
}

// checkPlaces checks the processes and which workers are in them.
func (t *Timeline) checkPlaces() error {
	want := t.Workers
	if len(t.Processes) == 0 {
		want = 0
	}
	if n := len(t.Places); n != want {
		return fmt.Errorf("trace: places has %d entries and processes %d: want one for each of %d workers, or none of both",
			n, len(t.Processes), t.Workers)
	}
	for i, p := range t.Processes {
		if err := CheckHost(p.Host); err != nil {
			return fmt.Errorf("trace: processes[%d]: %w", i, err)
		}
		if !finite(p.OffsetS) || !finite(p.Drift) || p.Drift <= -1 || !finite(p.ErrorS) || p.ErrorS < 0 {
			return fmt.Errorf("trace: processes[%d]: offset_s %v, drift %v, error_s %v: want finite numbers, a drift above -1 "+
				"and an error of 0 or more", i, p.OffsetS, p.Drift, p.ErrorS)
		}
	}
	for w, at := range t.Places {
		if at.Process < 0 || at.Process >= len(t.Processes) || at.Device < 0 {
			return fmt.Errorf("trace: places[%d]: process %d, device %d: want a process from 0 to %d and a device of 0 or more",
				w, at.Process, at.Device, len(t.Processes)-1)
		}
	}
	return nil
}

func (t *Timeline) checkEvent(e *Event) error {
	switch {
	case e.Worker < 0 || e.Worker >= t.Workers:
		return fmt.Errorf("worker is %d, want 0 to %d", e.Worker, t.Workers-1)
	case e.Lane != Compute && e.Lane != Comm && e.Lane != Beside:
		return fmt.Errorf("lane is %q, want %q, %q or %q", e.Lane, Compute, Comm, Beside)
	case e.Kind == "":
		return fmt.Errorf("kind is missing, want the letters of the instruction: F, B, SF")
	case !finite(e.ReadyS) || !finite(e.StartS) || !finite(e.EndS):
		return fmt.Errorf("ready_s %v, start_s %v, end_s %v: want finite numbers of seconds", e.ReadyS, e.StartS, e.EndS)
	case e.StartS < e.ReadyS:
		return fmt.Errorf("starts at %v s, before it was ready at %v s", e.StartS, e.ReadyS)
	case e.EndS < e.StartS:
		return fmt.Errorf("ends at %v s, before it started at %v s", e.EndS, e.StartS)
	case e.Bytes < 0:
		return fmt.Errorf("bytes is %d, want 0 or more", e.Bytes)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// checkPools refuses pools without cores, and all pools if Cores is set. It also refuses workers that do not exist or
// are in two pools.
func (t *Timeline) checkPools() error {
	seen := map[int]bool{}
	for i, p := range t.Pools {
		if p.Cores < 1 || t.Cores > 0 {
			return fmt.Errorf("trace: pools[%d]: %d cores, beside %d that all share; want 1 or more, and none that all share",
				i, p.Cores, t.Cores)
		}
		for _, w := range p.Workers {
			if w < 0 || w >= t.Workers || seen[w] {
				return fmt.Errorf("trace: pools[%d]: worker %d; want 0 to %d, each in one pool", i, w, t.Workers-1)
			}
			seen[w] = true
		}
	}
	return nil
}
