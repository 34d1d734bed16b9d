package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
)

// signalled is a command that gets a signal. The signal comes at a random moment within `span`.
type signalled struct {
	args     string
	span     time.Duration // for a training: how long it takes without a signal
	training *training     // a training to resume to its end afterwards; nil for other verbs
	best     []string      // files that the command may leave, with the best result before the signal
	reads    string        // a command that must accept the first file of `best`, if this file exists
}

// heardWithin is the longest time allowed from a signal to the end of a command. A training first finishes its step and
// saves; a step of these trainings takes a millisecond.
const heardWithin = 10 * time.Second

// simulated is the beginning of the command line that reads a plan whose search was stopped.
const simulated = "simulate --model gpt --set layers=24 --cluster dapple-a --batch 256 --plan "

var signalledCommands = []signalled{
	{args: "train --model mlp --data digits --batch 8 --stages 2 --eval-rows 8 --steps 100000000 --out out",
		span: 5 * time.Second},
	{args: "plan --model gpt --set layers=24 --cluster dapple-a --batch 256 -o plan.json", span: 4 * time.Second,
		best: []string{"plan.json"}, reads: simulated + "plan.json"},
	{training: &trainings[0]},
	{args: "schedule compare --stages 16 --micro-batches 128", span: 4 * time.Second},
	{args: "profile --model gpt --batch 8 -o profile.json", span: 5 * time.Second},
	{training: &trainings[1]},
	{args: "simulate --model gpt --set layers=24 --cluster dapple-a --batch 256 -o timeline.json.gz",
		span: 4 * time.Second},
	{args: "tune --model gpt --set layers=24 --cluster dapple-a --batch 256 --all -o p.json --report p.html",
		span: 3 * time.Second, best: []string{"p.json", "p.html"}, reads: simulated + "p.json"},
	{training: &trainings[2]},
	{args: "schedule zb-auto --stages 64 --micro-batches 8000 --text", span: 2 * time.Second},
	{args: "bench plan", span: 5 * time.Second},
	{training: &trainings[3]},
	{args: "reproduce all", span: 3 * time.Second},
	{args: "report @run", span: 15 * time.Millisecond},
	{args: "doctor --build", span: 3 * time.Second},
}

var stopping = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM}

// tries is how many times a command is started at most, until its signal comes while it runs. It is started again if it
// had ended, or had nearly ended, when the signal came.
const tries = 8

func attackSignals(ctx context.Context, a *attack, want int) (*tally, error) {
	t := &tally{want: want}
	err := a.each(ctx, want, func(i int) error {
		if a.one != "" && a.one != fmt.Sprint(i) {
			t.done.Add(1)
			return nil
		}
		r := seeded(a.seed+2, uint64(i))
		for range tries {
			met, f, err := a.signal(ctx, i, r)
			if err != nil {
				return fmt.Errorf("signal %d: %w", i, err)
			}
			if met || f != nil {
				t.add(f)
				return nil
			}
		}
		t.say("signal %d met nothing: %s is over too soon", i, signalledCommands[i%len(signalledCommands)].args)
		t.done.Add(1)
		return nil
	})
	return t, err
}

// signal starts the command with this number and sends it a signal. `met` is false if the command succeeded within a
// second of the signal, because it was then nearly done.
func (a *attack) signal(ctx context.Context, number int, r *rand.Rand) (met bool, f *finding, err error) {
	s := signalledCommands[number%len(signalledCommands)]
	with := stopping[(number+number/len(signalledCommands))%len(stopping)]
	dir, err := os.MkdirTemp(a.scratch, "signal-")
	if err != nil {
		return false, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := a.words(strings.Fields(s.args))
	if s.training != nil {
		whole, err := a.reference(ctx, s.training)
		if err != nil {
			return false, nil, err
		}
		s.span = whole.took
		args = a.trainArgs(s.training.args, "")
	}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		return false, nil, err
	}
	before, err := treeOf(dir)
	if err != nil {
		return false, nil, err
	}
	var sent time.Time
	c := command{dir: dir, home: dir, args: args, limits: usual}
	c.meanwhile = func(pid int) {
		pause(ctx, time.Duration(r.Int64N(int64(s.span))))
		if syscall.Kill(pid, with) == nil {
			sent = time.Now()
		}
	}
	began := time.Now()
	e, err := a.run(ctx, c)
	if err != nil {
		return false, nil, err
	}
	took := e.took - sent.Sub(began)
	// A command that was nearly done when the signal arrived may succeed.
	if e.code == 0 && took < time.Second {
		return false, nil, nil
	}
	wrong := append(e.faults(c.limits), e.disobeys(with, took)...)
	after, err := treeOf(dir)
	if err != nil {
		return false, nil, err
	}
	wrong = append(wrong, after.halfWritten(before)...)
	last := c
	if s.training != nil {
		var more []string
		if more, last, err = a.resumed(ctx, s.training, dir); err != nil {
			return false, nil, err
		}
		wrong = append(wrong, more...)
	} else if !strings.HasPrefix(s.args, "train") {
		wrong = append(wrong, after.changes(before, func(path string) bool {
			return inCacheOrTemporary(path) || slices.Contains(s.best, path)
		})...)
		more, err := a.readsBest(ctx, &s, dir, after, e)
		if err != nil {
			return false, nil, err
		}
		wrong = append(wrong, more...)
	}
	name := fmt.Sprintf("signal %d, %v to millrace %s", number, with, strings.Join(args, " "))
	if f = a.found(name, last, e, wrong); f != nil {
		f.name = fmt.Sprintf("signal %d", number)
		err = a.keepFolder(f, dir)
		f.name = name
		f.repeat = fmt.Sprintf("make attack ATTACK='--only signals --case %d --seed %d'; its folder: %s",
			number, a.seed, f.kept)
	}
	return true, f, err
}

// disobeys returns what is wrong with how a command ended after a signal, and with the time it took.
func (e *ended) disobeys(signal syscall.Signal, took time.Duration) (wrong []string) {
	if want := 128 + int(signal); e.code != want {
		wrong = append(wrong, fmt.Sprintf("ended with %d on %v, not %d: %s", e.code, signal, want, e.last()))
	}
	if took > heardWithin {
		wrong = append(wrong, fmt.Sprintf("took %v to end on %v", took.Round(time.Millisecond), signal))
	}
	return wrong
}

// readsBest reads the best result that a command left. The command must have named the file.
func (a *attack) readsBest(ctx context.Context, s *signalled, dir string, left tree, e *ended) ([]string, error) {
	if len(s.best) == 0 || left[s.best[0]] == "" {
		return nil, nil
	}
	var wrong []string
	if !bytes.Contains(e.err, []byte("in "+s.best[0])) {
		wrong = append(wrong, fmt.Sprintf("did not say that it left %q: %s", s.best[0], e.last()))
	}
	again, err := a.run(ctx, command{dir: dir, home: dir, args: strings.Fields(s.reads), limits: usual})
	if err == nil && again.code != 0 {
		wrong = append(wrong, fmt.Sprintf("left %q, which ends millrace %s with %d: %s", s.best[0], s.reads, again.code,
			again.last()))
	}
	return wrong, err
}

// resumed resumes a stopped training to its end. The final weights must equal those of an undisturbed training. If a
// save changes the steps after it, the weights at the stop are compared instead.
func (a *attack) resumed(ctx context.Context, t *training, dir string) (wrong []string, last command, err error) {
	latest, err := checkpoint.Latest(filepath.Join(dir, "out", "checkpoints"))
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return nil, last, err
	}
	if err == nil && t.drains {
		if wrong, err = a.afresh(ctx, t, latest, dir); err != nil {
			return nil, last, err
		}
	}
	more, last, err := a.finish(ctx, t, t.args, dir, !t.drains)
	return append(wrong, more...), last, err
}
