package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// inTurn returns a stream whose first stage has this many replicas, which take minibatches in turn. A step has one
// micro-batch.
func inTurn(t *testing.T, replicas, steps int) Config {
	c := small(t, 2, steps)
	c.Train.Clip = 0
	c.Plan.Schedule, c.Plan.Weights, c.Plan.MicroBatches = "1f1b-rr", "stash", 1
	c.Plan.Stages[0].Devices, c.Plan.Stages[1].Devices = nil, []int{replicas}
	for d := range replicas {
		c.Plan.Stages[0].Devices = append(c.Plan.Stages[0].Devices, d)
	}
	return c
}

// Programs end after whole groups of the minibatches that one update covers, so that stages can save in all of these
// Programs. If 3 replicas take minibatches in turn and a Program may have 11 steps, Programs end after steps 9, 18 and
// 27. Stages also save with evaluations and in a resumed run.
func TestStagesSaveInProgramsBehindOthers(t *testing.T) {
	for name, set := range map[string]func(c *Config){
		"programs of 11 steps at most": func(c *Config) { c.longest = 11 },
		"evaluations":                  func(c *Config) { c.Data.Test, c.Train.EvalEvery = c.Data.Train, 9 },
		"resumed": func(c *Config) {
			first := *c
			first.Train.Steps, first.Checkpoint = 9, Checkpointing{Dir: t.TempDir()}
			train(t, first)
			c.Resume.At = first.Checkpoint.Dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := inTurn(t, 3, 31)
			c.Train.EvalRows = 4
			set(&c)
			never := train(t, c)
			saving := c.saves(t.TempDir(), 6)
			var saved []int
			saving.Hooks.OnCheckpoint = func(_ string, steps int) { saved = append(saved, steps) }
			got := train(t, saving)
			if err := sameWeights(never.Weights, got.Weights); err != nil {
				t.Error(err)
			}
			want := []int{6, 12, 18, 24, 30, 31}
			if c.Resume.At != "" {
				want = want[1:]
			}
			if !slices.Equal(saved, want) {
				t.Errorf("saved behind %v, wanted %v", saved, want)
			}
		})
	}
}

// The run has more steps than one Program may have. As 3 replicas take minibatches in turn, a Program ends after 4095
// steps: the maximum, 4096, is not a whole number of groups.
func TestStagesSaveBehindTheLongestProgram(t *testing.T) {
	c := inTurn(t, 3, 4500).saves(t.TempDir(), 900)
	c.Checkpoint.Keep = 1
	var saved []int
	c.Hooks.OnCheckpoint = func(_ string, steps int) { saved = append(saved, steps) }
	train(t, c)
	if want := []int{900, 1800, 2700, 3600, 4500}; !slices.Equal(saved, want) {
		t.Errorf("saved behind %v, wanted %v", saved, want)
	}
}

// A run is refused before it begins if a Program would begin in the middle of a group. The reason may be an
// evaluation, or the step at which the run resumes.
func TestStagesDoNotSaveBehindPartOfAGroup(t *testing.T) {
	c := inTurn(t, 2, 16).saves(t.TempDir(), 4)
	c.Data.Test, c.Train.EvalEvery = c.Data.Train, 3
	want := "evaluation every 3 steps (eval-every) drains between them; stages update for 2 at once: give a multiple"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; wanted %q", err, want)
	}
	c.Data.Test, c.Train.EvalEvery = nil, 0
	first := c
	first.Train.Steps, first.Checkpoint = 7, Checkpointing{Dir: t.TempDir()}
	train(t, first)
	c.Resume.At = first.Checkpoint.Dir
	want = "steps is 7; this run has save mode stage, and stages that update for 2 at once: go on from a multiple"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; wanted %q", err, want)
	}
	if c.Train.Steps = 7; c.Check() != nil {
		t.Error(c.Check()) // no steps are left, so 7 need not be a multiple
	}
}

// If stages save themselves, the lists of a 1f1b-rr Program are unrolled, so the number of their instructions limits
// its steps. The limit is the same without such saves. Here a step has 1024 micro-batches, each with at least 6
// instructions on the two stages together.
func TestLongProgramsAreBoundedByInstructions(t *testing.T) {
	c := small(t, 2, 9)
	c.Train.Clip, c.Plan.MicroBatches = 0, 1024
	for schedule, bounded := range map[string]bool{"1f1b": false, "1f1b-rr": true} {
		if c.Plan.Schedule = schedule; bounded {
			c.Plan.Weights = "stash"
		} else {
			c.Plan.Weights = "sync"
		}
		p, err := programs.Build(c.Plan, nil, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		if n := longest(p, maxRepeat); bounded && (n < 2 || n > maxUnrolled/(6*1024)) || !bounded && n != maxRepeat {
			t.Errorf("%s: %d steps", schedule, n)
		}
	}
}

// Drafts that stages have begun are removed even if no stage has reported a save. Complete checkpoints are not
// removed, nor is a draft that other folders may need.
func TestDraftsThatNobodyHasSpokenOf(t *testing.T) {
	c := inTurn(t, 2, 20).saves(t.TempDir(), 4)
	p, err := programs.Build(c.Plan, nil, false, 20)
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{config: &c, saves: saves{run: 7, at: -1}}
	if _, err := l.saving(p); err != nil {
		t.Fatal(err)
	}
	l.saves.at, l.saves.epochs.sealing = 8, &epoch{steps: 12}
	for others, want := range map[bool][]int{false: {12, 16, 20}, true: {16, 20}} {
		l.saves.others = others
		var names []string
		for _, steps := range want {
			names = append(names, checkpoint.DraftName(steps, 7))
		}
		if got := l.saves.drafts(); !slices.Equal(got, names) {
			t.Errorf("other folders: %v: %v; wanted %v", others, got, names)
		}
	}
}
