package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
)

// steps is the number of steps of the trainings that are killed or stopped. It is so large that most random moments are
// between the first and the last step.
const steps = 120

// training is a training that is stopped early and resumed.
type training struct {
	name string
	args string // arguments of train, without --out and --resume
	// others are alternative arguments for the resumed training, each with another plan.
	others []string
	// drains means that a save empties the pipeline, which changes later steps. A stop causes one more save, so the
	// final weights of a stopped and resumed training differ from those of an undisturbed one.
	drains bool
}

const saved = " --steps 120 --save-every 4 --keep 3"

// mlp is the beginning of the arguments for trainings of the mlp.
const mlp = "--model mlp --data digits @P "

var trainings = []training{
	{name: "sync", args: mlp + "--schedule 1f1b --clip 1" + saved, others: []string{
		mlp + "--schedule zb-h1 --clip 1" + saved,
		mlp + "--schedule afab --clip 1 --recompute stage" + saved,
		"--model mlp --data digits --profile @mlp.json --batch 8 --stages 1 --workers 1 --eval-rows 8 --clip 1" + saved}},
	{name: "stash", args: mlp + "--schedule 1f1b-rr --weights stash --optimizer sgd --momentum 0.9" + saved, drains: true},
	{name: "2bw", args: mlp + "--schedule 1f1b-rr --weights 2bw" + saved, drains: true},
	{name: "elastic", args: mlp + "--schedule elastic --pipelines 2" + saved},
}

type references struct {
	mu   sync.Mutex
	made map[string]reference
}

// reference is the result of an undisturbed training: its final checkpoint and its duration.
type reference struct {
	final string
	took  time.Duration
}

// reference returns the result of an undisturbed training, which it runs at the first call.
func (a *attack) reference(ctx context.Context, t *training) (reference, error) {
	a.undisturbed.mu.Lock()
	defer a.undisturbed.mu.Unlock()
	if made, ok := a.undisturbed.made[t.name]; ok {
		return made, nil
	}
	dir := filepath.Join(a.scratch, "reference-"+t.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return reference{}, err
	}
	e, err := a.run(ctx, command{dir: dir, home: dir, args: a.trainArgs(t.args, "")})
	if err != nil {
		return reference{}, err
	}
	if e.code != 0 {
		return reference{}, fmt.Errorf("the undisturbed training %s ends with %d: %s", t.name, e.code, e.last())
	}
	made := reference{finalOf(dir, steps), e.took}
	if a.undisturbed.made == nil {
		a.undisturbed.made = map[string]reference{}
	}
	a.undisturbed.made[t.name] = made
	return made, nil
}

// trainArgs returns the arguments of a training in the folder `out`. The training resumes from a checkpoint if one is
// given.
func (a *attack) trainArgs(args, resume string) []string {
	words := append([]string{"train", "--out", "out"}, strings.Fields(args)...)
	if resume != "" {
		words = append(words, "--resume", resume)
	}
	return a.words(words)
}

// afresh runs an undisturbed training up to the step of a checkpoint. It returns the differences between the training's
// result and the checkpoint.
func (a *attack) afresh(ctx context.Context, t *training, stopped, dir string) (wrong []string, err error) {
	c, err := checkpoint.Open(stopped)
	if err != nil {
		return []string{"saved a checkpoint that does not open: " + err.Error()}, nil
	}
	done := c.Manifest.Steps
	if err := c.Close(); err != nil {
		return nil, err
	}
	if done == 0 { // there is no run of 0 steps to compare with
		return nil, nil
	}
	home := filepath.Join(dir, "afresh")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	shorter := strings.Replace(t.args, fmt.Sprintf("--steps %d", steps), fmt.Sprintf("--steps %d", done), 1)
	e, err := a.run(ctx, command{dir: home, home: home, args: a.trainArgs(shorter, "")})
	if err != nil {
		return nil, err
	}
	if e.code != 0 {
		return nil, fmt.Errorf("%s, undisturbed for %d steps, ends with %d: %s", t.name, done, e.code, e.last())
	}
	if err := sameTensors(finalOf(home, done), stopped); err != nil {
		wrong = append(wrong, "saved other weights than an undisturbed run has after as many steps: "+err.Error())
	}
	return wrong, os.RemoveAll(home)
}

// finish resumes a training to its end and compares it with an undisturbed one. `args` are the flags for the plan of
// the resumed part; `compares` says whether the final weights must be equal.
func (a *attack) finish(ctx context.Context, t *training, args, dir string, compares bool) (
	wrong []string, last command, err error,
) {
	want, err := a.reference(ctx, t)
	if err != nil {
		return nil, last, err
	}
	words := a.trainArgs(args, "out/checkpoints")
	_, err = checkpoint.Latest(filepath.Join(dir, "out", "checkpoints"))
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return nil, last, err
	}
	if err != nil {
		words = append(a.trainArgs(t.args, ""), "--overwrite") // the training was killed before its first checkpoint
	}
	last = command{dir: dir, home: dir, args: words, limits: usual}
	before, err := treeOf(dir)
	if err != nil {
		return nil, last, err
	}
	e, err := a.run(ctx, last)
	if err != nil {
		return nil, last, err
	}
	wrong = e.faults(usual)
	if e.code != 0 {
		return append(wrong, fmt.Sprintf("cannot be finished: it ends with %d: %s", e.code, e.last())), last, nil
	}
	after, err := treeOf(dir)
	if err != nil {
		return nil, last, err
	}
	for _, name := range []string{"out/report.html", "out/timeline.json.gz"} {
		if after[name] == "" {
			wrong = append(wrong, "is finished without "+name)
		}
	}
	for path := range after {
		if unfinished.MatchString(path) && before[path] == "" {
			wrong = append(wrong, fmt.Sprintf("left %+q behind", path))
		}
	}
	got := finalOf(dir, steps)
	if err := sameTensors(want.final, got); compares && err != nil {
		wrong = append(wrong, "ends with other weights than an undisturbed run: "+err.Error())
	}
	return wrong, last, nil
}

// finalOf returns the checkpoint after this many steps of a training in a folder.
func finalOf(dir string, steps int) string {
	return filepath.Join(dir, "out", "checkpoints", fmt.Sprintf("step-%08d", steps))
}

// sameTensors returns what differs between the tensors of two checkpoints; nil if all bits are equal.
func sameTensors(want, got string) (err error) {
	a, err := checkpoint.Open(want)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := checkpoint.Open(got)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	names := a.Names()
	if others := b.Names(); strings.Join(names, " ") != strings.Join(others, " ") {
		return fmt.Errorf("tensors %v and %v", names, others)
	}
	var differ []string
	for _, name := range names {
		x, err := a.Tensor(name)
		if err != nil {
			return err
		}
		y, err := b.Tensor(name)
		if err != nil {
			return err
		}
		if !bytes.Equal(x.Data, y.Data) {
			differ = append(differ, name)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%d of %d tensors differ: %s", len(differ), len(names), strings.Join(differ, " "))
	}
	return nil
}
