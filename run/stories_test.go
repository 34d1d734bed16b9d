package run

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/process"
)

// TestStories runs the stories in testdata about failures of a run, and what is left afterwards.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{dir: t.TempDir()} })
}

// storyWorld has a checkpoint folder and the result of the last run.
type storyWorld struct {
	dir  string
	last *Result
}

// timed matches durations in a run's messages.
var timed = regexp.MustCompile(`\d+(\.\d+)?(ms|µs|s)\b`)

// Do implements storytest.World.
//
//	train stages=N steps=N [save=N resume]    trains a small network, which saves every so many steps
//	    poison=STEP                           a sample of that step is NaN
//	    fails=WORKER panics=WORKER            the worker's device fails, or its code panics, after 20 of its backwards
//	    lost                                  activations are lost between workers
//	compare stages=N steps=N                  whether an undisturbed run leaves the same weights
func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	stages, steps, save, poison, worker := 1, 0, 0, -1, 0
	d.ScanArgs(t, "stages", &stages)
	d.ScanArgs(t, "steps", &steps)
	d.MaybeScanArgs(t, "save", &save)
	c := small(t, stages, steps)
	switch d.Cmd {
	case "train":
		if save > 0 {
			c.Checkpoint = Checkpointing{Dir: w.dir, Every: save}
		}
		if d.HasArg("resume") {
			c.Resume.At = w.dir
		}
		if d.MaybeScanArgs(t, "poison", &poison); poison >= 0 {
			c.Data.Train = poisoned{c.Data.Train.(noise), poison - 1} // in stories, steps count from 1
		}
		if d.MaybeScanArgs(t, "fails", &worker); d.HasArg("fails") {
			c.Engine = badEngine{Engine: c.Engine, worker: worker, after: 20,
				do: func() error { return errors.New("the device is on fire") }}
		}
		if d.MaybeScanArgs(t, "panics", &worker); d.HasArg("panics") {
			c.Engine = badEngine{Engine: c.Engine, worker: worker, after: 20, do: func() error {
				var layers []int
				layers[0]++ // an index out of range
				return nil
			}}
		}
		if d.HasArg("lost") {
			c.Wire.Carriers, c.Watch.StallAfter = losing, 300*time.Millisecond
		}
		return w.train(t, c)
	case "compare":
		if err := sameWeights(train(t, c).Weights, w.last.Weights); err != nil {
			return "", err
		}
		return "the same bits\n", nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// train runs a training and describes its result.
func (w *storyWorld) train(t *testing.T, c Config) (string, error) {
	res, err := Train(t.Context(), c)
	var b strings.Builder
	given := "everything is given back"
	if res.Leaked > 0 {
		given = "something is not given back"
	}
	fmt.Fprintf(&b, "%d steps are done, %s\n", res.Steps, given)
	if saved, wrong := checkpoint.Open(w.dir); wrong == nil {
		fmt.Fprintf(&b, "the last checkpoint is of step %d\n", saved.Manifest.Steps)
		if err := saved.Close(); err != nil {
			return "", err
		}
	}
	w.last = res
	if err == nil {
		return b.String(), nil
	}
	if p := (*crash.Panic)(nil); errors.As(err, &p) {
		fmt.Fprintf(&b, "a panic, whose stack names the line of the mistake: %v\n",
			strings.Contains(string(p.Stack), "run/stories_test.go"))
	}
	if errors.Is(err, process.ErrNotFinite) {
		fmt.Fprintln(&b, "process.ErrNotFinite")
	}
	return b.String(), errors.New(timed.ReplaceAllString(err.Error(), "(time)"))
}
