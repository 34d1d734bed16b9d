package run

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/run/process"
)

// lateness returns the delays of devices in tests.
func lateness(seed uint64) ref.Lateness {
	return ref.Lateness{Seed: seed, OneIn: 40, Most: 100 * time.Microsecond}
}

// late returns c, or a copy whose devices are delayed. Only runs on the engine in Go get delayed devices: one in ten,
// or all if MILLRACE_LATE is set. A run must pass its test on delayed devices too. Twins stay on the synchronous
// engine.
func late(t testing.TB, c Config) Config {
	if _, prompt := c.Engine.(*ref.Engine); !prompt {
		return c
	}
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	seed := h.Sum64() + uint64(c.Train.Seed) + uint64(len(c.Plan.Stages))
	if seed%10 != 0 && os.Getenv("MILLRACE_LATE") == "" {
		return c
	}
	c.Engine = ref.Lazy(lateness(seed))
	if c.Machine.Cores == 0 {
		c.Machine.Ahead = int(seed / 10 % 3)
	}
	return c
}

// waiting returns a run that reaches every wait except process.WaitValidated and process.WaitSteps. It has replicas,
// parameters tied over a cut, a global norm, messages, a checkpoint, and weights at the end.
func waiting(t *testing.T) Config {
	t.Helper()
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{6, 6, 6}, "classes": 4})
	first, last := m.Index("dense0"), m.Index("dense2")
	m.Layers[last].Params[0].Tied = m.Layers[first].Name + ".weight"
	pl := planOf(m, []int{last - 1}, 2, 2, "1f1b")
	pl.Stages[0].Devices, pl.Stages[1].Devices = []int{0, 1}, []int{2}
	c := basic(t, ref.New(), m, pl, 4, 2)
	c.Train.Clip = 0.05
	c.Checkpoint.Dir = t.TempDir()
	return c
}

// wrong returns what is wrong with a run on delayed devices; `want` is the result on synchronous ones.
func wrong(got *Result, err error, want *Result) error {
	if err != nil {
		return err
	}
	if err := sameWeights(want.Weights, got.Weights); err != nil {
		return err
	}
	// A computation has several pieces of work, each delayed by a fifth of a millisecond on average. So on average a
	// computation takes longer than a fifth of a millisecond.
	computed, least := 0, 0.0
	for _, e := range got.Timeline.Events {
		if e.Kind == "F" || e.Kind == "B" || e.Kind == "U" {
			computed++
			least += 2e-4
		}
	}
	if got.BusySeconds < least {
		return fmt.Errorf("%d computations take %v s; late devices take more than %v", computed, got.BusySeconds, least)
	}
	for _, e := range got.Timeline.Events {
		for _, s := range got.Timeline.Steps {
			if e.Kind == "U" && e.Step == s.Step && e.EndS > s.EndS {
				return fmt.Errorf("%s of step %d ends at %v s, the step at %v", e.Instruction, s.Step, e.EndS, s.EndS)
			}
		}
	}
	return nil
}

// TestEveryWaitIsNeeded disables each wait in turn. On delayed devices the run then fails, or its result is wrong.
func TestEveryWaitIsNeeded(t *testing.T) {
	for _, at := range append([]process.Wait{""}, process.Waits...) {
		if at == process.WaitSteps {
			continue // see TestBesideOnLateDevices
		}
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			c := waiting(t)
			if at == process.WaitValidated {
				c.Plan.PostValidate = true
			}
			want := train(t, c)
			c.Checkpoint.Dir = t.TempDir()
			c.Engine, c.without = ref.Lazy(ref.Lateness{Seed: 5, OneIn: 1, Most: 400 * time.Microsecond}), at
			got, err := Train(t.Context(), c)
			if err = wrong(got, err, want); (err == nil) != (at == "") {
				t.Errorf("without it: %v", err)
			} else if err != nil {
				t.Log(err)
			}
		})
	}
}

// unreadable is an engine whose devices do not allow reading single numbers.
type unreadable struct{ engine.Engine }

type unreadableDevice struct{ engine.Device }

func (e unreadable) Open(worker, threads int) (engine.Device, error) {
	d, err := e.Engine.Open(worker, threads)
	return unreadableDevice{d}, err
}

func (unreadableDevice) Item(engine.Tensor) (float64, error) {
	return 0, errors.New("an item is read")
}

// Training never reads a single number, which would make the host wait for the device within a step. Losses are read
// together, before their gradients are used.
func TestTrainingReadsNoItem(t *testing.T) {
	c := waiting(t)
	c.Engine = unreadable{c.Engine}
	if _, err := Train(t.Context(), c); err != nil {
		t.Error(err)
	}
	c.Data.Test, c.Train.EvalRows, c.Checkpoint.Dir = c.Data.Train, 4, t.TempDir()
	if _, err := Train(t.Context(), c); err == nil || !strings.Contains(err.Error(), "an item is read") {
		t.Errorf("an evaluation reads items: %v", err)
	}
}
