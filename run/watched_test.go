package run

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// instructions returns the instructions of a step in a Timeline, sorted by their text.
func instructions(t *trace.Timeline, step int) (all []string) {
	for _, e := range t.Events {
		if e.Step == step && trace.OfStep(&e) {
			all = append(all, e.Instruction)
		}
	}
	slices.Sort(all)
	return all
}

// A run that is watched shows steps while it runs, and still computes the same weights. Each shown step has the same
// computations as in the final record. In a stream, whose steps overlap, it includes other work of the same time.
func TestAWatchedRunShowsItsSteps(t *testing.T) {
	const steps = 12
	for name, of := range map[string][]int{"one process": {0, 0, 0}, "three": {0, 1, 2}} {
		for _, weights := range []string{"sync", "stash"} {
			c := small(t, 3, steps)
			if c.Keep.Steps = steps; weights != "sync" {
				c.Plan, c.Train.Clip = planOf(c.Model, evenCuts(len(c.Model.Layers), 3), 2, 1, "1f1b-rr"), 0
				c.Plan.Weights = weights
			}
			unwatched := train(t, c)
			var shown []*trace.Timeline
			c.Hooks.WantsTrace = func(step int) bool { return step%3 == 1 }
			c.Hooks.OnTrace = func(t *trace.Timeline) { shown = append(shown, t) }
			w := worlds{of: of, carriers: pipe.New}
			res := w.train(t.Context(), t, c).whole(t)
			if err := sameWeights(unwatched.Weights, res.Weights); err != nil {
				t.Errorf("%s, %s: %v", name, weights, err)
			}
			if len(shown) == 0 {
				t.Errorf("%s, %s: no step was shown", name, weights)
			}
			for _, s := range shown {
				if err := s.Validate(); err != nil {
					t.Errorf("%s, %s: %v", name, weights, err)
				}
				step := s.Steps[0].Step
				got, want := instructions(s, step), instructions(&res.Timeline, step)
				computed := func(in string) bool { return !strings.ContainsAny(in, "FBU") || strings.ContainsAny(in, "SR") }
				got, want = slices.DeleteFunc(got, computed), slices.DeleteFunc(want, computed) // sends may end later
				if len(s.Steps) != 1 || step%3 != 1 || len(got) == 0 || !slices.Equal(got, want) {
					t.Errorf("%s, %s: step %d shows\n%q, want\n%q", name, weights, step, got, want)
				}
				if overlaps := len(instructions(s, step+1)) > 0; overlaps && weights == "sync" {
					t.Errorf("%s: step %d is shown with the next", name, step)
				}
				start, end := s.Steps[0].StartS, s.Steps[0].EndS
				off := .05 + s.ErrorS() // error between clocks of processes, and a margin
				for _, e := range s.Events {
					if e.Step == step && e.Lane == trace.Compute && (e.StartS < start-off || e.EndS > end+off) {
						t.Errorf("%s, %s: %s is not in step %d", name, weights, e.Instruction, step)
					}
				}
			}
		}
	}
}

// slowOnce's device takes long for one backward, after a number of other backwards.
type slowOnce struct {
	engine.Engine
	worker, after int
	done          *atomic.Int32
	free          <-chan struct{}
}

func (e slowOnce) Open(worker, threads int) (engine.Device, error) {
	d, err := e.Engine.Open(worker, threads)
	if worker != e.worker {
		return d, err
	}
	return slowOnceDevice{d, e}, err
}

type slowOnceDevice struct {
	engine.Device
	of slowOnce
}

func (d slowOnceDevice) Backward(outputs, grads []engine.Tensor) error {
	if int(d.of.done.Add(1)) == d.of.after {
		<-d.of.free
	}
	return d.Device.Backward(outputs, grads)
}

// While a step takes far longer than others, the run reports which worker waits for which. It reports again when the
// step's time has doubled since then. The other steps are not late.
func TestAStepThatIsLateSaysWhy(t *testing.T) {
	for name, of := range map[string][]int{"one process": {0, 0, 0}, "three": {0, 1, 2}} {
		c, free := small(t, 3, 30), make(chan struct{})
		c.Watch.LateAfter = 400 * time.Millisecond
		var chains [][]string
		var lates []time.Duration
		c.Hooks.OnLate = func(late, usual time.Duration, chain []string) {
			if usual <= 0 || late < 10*usual {
				t.Errorf("%s: late by %v, and others take %v", name, late, usual)
			}
			if !slices.ContainsFunc(chain, func(line string) bool {
				return strings.HasPrefix(line, "worker 1 (") && strings.Contains(line, " is at 1B")
			}) {
				return // another step is late, because the machine was slow
			}
			lates, chains = append(lates, late), append(chains, chain)
			if len(lates) == 2 {
				close(free)
			}
		}
		w := worlds{of: of, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			if p == of[1] {
				c.Engine = slowOnce{c.Engine, c.Machine.World.Workers[1].Device, 60, new(atomic.Int32), free}
			}
		}
		w.train(t.Context(), t, c).whole(t)
		if len(lates) != 2 || lates[0] < c.Watch.LateAfter || lates[1] < 2*lates[0] {
			t.Fatalf("%s: late by %v", name, lates)
		}
		if len(chains[0]) != 3 {
			t.Errorf("%s: said %q", name, chains[0])
		}
	}
}
