package run

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// A run that was saved and resumed ends with the same bits and losses as one that never stopped. It resumes under the
// same plan or another.
func TestResumingIsAsNotHavingStopped(t *testing.T) {
	whole := small(t, 1, 8)
	want := train(t, whole)
	for _, c := range []struct{ before, after int }{{1, 1}, {1, 4}, {4, 1}, {3, 3}, {2, 5}} {
		t.Run(fmt.Sprintf("%d then %d", c.before, c.after), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			first := small(t, c.before, 5)
			first.Checkpoint = Checkpointing{Dir: dir, Every: 2, Keep: 2}
			var saved []int
			first.Hooks.OnCheckpoint = func(dir string, steps int) { saved = append(saved, steps) }
			if res := train(t, first); res.Checkpoint != filepath.Join(dir, "step-00000005") {
				t.Error(res.Checkpoint)
			}
			if !slices.Equal(saved, []int{2, 4, 5}) {
				t.Errorf("saved after %v", saved)
			}
			second := small(t, c.after, 8)
			second.Resume.At = dir
			got := train(t, second)
			if err := sameWeights(want.Weights, got.Weights); err != nil {
				t.Error(err)
			}
			if a, b := losses(want.Timeline)[5:], losses(got.Timeline); !slices.Equal(a, b) {
				t.Errorf("losses %v; want %v", b, a)
			}
			if got.Timeline.Steps[0].Step != 5 || got.Steps != 8 {
				t.Error(got.Timeline.Steps, got.Steps)
			}
		})
	}
}

func TestTiedWeightsAreSavedOnceAndResumed(t *testing.T) {
	resumesTied(t, nil, "embed.weight", "embed.weight#mean", "embed.weight#variance")
}

// A tied parameter that is frozen is saved only once, without optimizer states, and every stage that reads it finds it
// again.
func TestFrozenTiedWeightsAreSavedOnceAndResumed(t *testing.T) {
	resumesTied(t, []string{"head.weight"}, "embed.weight")
}

// resumesTied trains a transformer on three stages, saves it, and resumes on two. The checkpoint must have the
// wanted tensors of the tied table.
func resumesTied(t *testing.T, frozen []string, want ...string) {
	t.Helper()
	e := torchEngine(t)
	m := build(t, "gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30,
		"tied": true})
	if frozen != nil {
		if err := m.Freeze(frozen); err != nil {
			t.Fatal(err)
		}
	}
	config := func(stages, steps int) Config {
		c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), stages), 2, 3, "1f1b"), 30, steps)
		c.Train.Optimizer = optim.Settings{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1}
		c.Train.Rate.Base = 0.01
		return c
	}
	dir := t.TempDir()
	first := config(3, 3)
	first.Checkpoint.Dir = dir
	train(t, first)
	saved, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	tied := slices.DeleteFunc(saved.Names(), func(n string) bool {
		return !strings.HasPrefix(n, "embed.weight") && !strings.HasPrefix(n, "head.weight")
	})
	if !slices.Equal(tied, want) {
		t.Error(tied)
	}
	second := config(2, 6)
	second.Resume.At = dir
	if err := sameWeights(train(t, config(1, 6)).Weights, train(t, second).Weights); err != nil {
		t.Error(err)
	}
}

// Stopping finishes the step that has begun and saves it. A resumed run ends with the same bits.
func TestStoppingFinishesTheStepAndSaves(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	c := small(t, 3, 1000)
	c.Checkpoint.Dir = dir
	c.Hooks.OnStep = func(s StepReport) {
		if s.Step == 3 {
			stop()
		}
	}
	res, err := Train(ctx, c)
	if err != nil || !res.Stopped || res.Steps < 4 || res.Steps > 900 || res.Leaked != 0 {
		t.Fatal(err, res.Stopped, res.Steps, res.Leaked)
	}
	if len(res.Timeline.Steps) != res.Steps {
		t.Errorf("%d steps marked of %d", len(res.Timeline.Steps), res.Steps)
	}
	rest := small(t, 2, res.Steps+3)
	rest.Resume.At = dir
	if err := sameWeights(train(t, small(t, 1, res.Steps+3)).Weights, train(t, rest).Weights); err != nil {
		t.Error(err)
	}
}

func TestARunStoppedBeforeItBeginsDoesNothing(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	res, err := Train(ctx, small(t, 2, 3))
	if err != nil || !res.Stopped || res.Steps != 0 || len(res.Timeline.Events) != 0 {
		t.Error(err, res)
	}
}

// Checkpoints and evaluations end Programs with a drain. They do not change the weights by a single bit.
func TestPeriodsChangeNothing(t *testing.T) {
	want := train(t, small(t, 3, 6))
	c := small(t, 3, 6)
	c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 1, Keep: 1}
	c.Data.Test = noise{model: c.Model, classes: 4, rows: 11, seed: 3}
	c.Train.EvalEvery = 2
	var seen []trace.Evaluation
	c.Hooks.OnEvaluation = func(e trace.Evaluation) { seen = append(seen, e) }
	got := train(t, c)
	if err := sameWeights(want.Weights, got.Weights); err != nil {
		t.Error(err)
	}
	if !slices.Equal(losses(want.Timeline), losses(got.Timeline)) {
		t.Error(losses(got.Timeline))
	}
	if len(seen) != 3 || seen[2].Step != 5 || seen[0].Samples != 11 || !reflect.DeepEqual(seen, got.Timeline.Evaluations) {
		t.Error(seen)
	}
	// However the stages are cut, an evaluation has the same result.
	for _, p := range []*plan.Plan{small(t, 1, 6).Plan, small(t, 5, 6).Plan} {
		c := c
		c.Plan, c.Checkpoint, c.Hooks = p, Checkpointing{}, Hooks{}
		if other := train(t, c); !reflect.DeepEqual(other.Timeline.Evaluations, seen) {
			t.Errorf("%v; want %v", other.Timeline.Evaluations, seen)
		}
	}
}
