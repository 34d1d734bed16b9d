package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

const (
	processes = 3
	steps     = 300
	saveEvery = 20
	promptly  = 10 * time.Second // in which every process that can run ends
	patience  = 2 * time.Minute  // for anything else
)

// training is the one that is disturbed; what is drawn of it follows.
var training = append(strings.Fields("train --model mlp --data digits --batch 32 --micro-batch 8 --schedule 1f1b "+
	"--clip 1 --keep 3 --eval-rows 8"), "--steps", fmt.Sprint(steps), "--save-every", fmt.Sprint(saveEvery))

// args are those of the training on so many workers, in a folder.
func (c *campaign) args(workers int, out string, more ...string) []string {
	args := append(training[:len(training):len(training)], "--stages", fmt.Sprint(workers), "--profile",
		filepath.Join(c.scratch, "profile.json"), "--out", out)
	return append(args, more...)
}

// prepare profiles, and trains once without a fault.
func (c *campaign) prepare(ctx context.Context) error {
	for _, args := range [][]string{
		{"profile", "--model", "mlp", "--sizes", "8", "--batch", "32", "--passes", "1", "-o", "profile.json"},
		c.args(processes, "whole", "--workers", fmt.Sprint(processes)),
	} {
		p := exec.CommandContext(ctx, c.millrace, args...)
		p.Dir = c.scratch
		p.Env = append(os.Environ(), "MILLRACE_NATIVE="+c.native, "XDG_CACHE_HOME="+c.scratch)
		if out, err := p.CombinedOutput(); err != nil {
			return fmt.Errorf("faults: millrace %s: %w, so that there is nothing to disturb:\n%s", strings.Join(args, " "), err,
				out)
		}
	}
	return nil
}

// try is one fault.
type try struct {
	number, victim int
	moment         string // when it was
	took           time.Duration
	again          string // how it went on
	named, right   bool
	clean          bool
	fewer          bool   // processes go on
	own            bool   // every host has a folder of its own
	dir            string // of them, or for all
	wrong          []string
	kept           string
}

func (t *try) says(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

// try makes the try of this number of a way.
func (c *campaign) try(ctx context.Context, w way, number int) (t *try, err error) {
	draw := rand.New(rand.NewPCG(c.seed, uint64(number)<<8|uint64(len(w.name))))
	t = &try{number: number, victim: w.victims[draw.IntN(len(w.victims))], own: number%3 == 1, fewer: number%3 == 2}
	if t.dir, err = os.MkdirTemp(c.scratch, w.name+"-"); err != nil {
		return nil, err
	}
	for rank := range processes {
		if err := os.MkdirAll(t.folder(rank), 0o755); err != nil {
			return nil, err
		}
	}
	defer func() {
		if c.keep && len(t.wrong) > 0 {
			t.kept = t.dir
			return
		}
		err = errors.Join(err, os.RemoveAll(t.dir))
	}()
	run := fmt.Sprintf("%016x", draw.Uint64())
	if err := c.disturb(ctx, w, t, draw, run); err != nil {
		return nil, err
	}
	return t, c.goOn(ctx, t, run)
}

// folder is where a process runs.
func (t *try) folder(rank int) string {
	if t.own {
		return filepath.Join(t.dir, hostOf(rank))
	}
	return t.dir
}

// out is the run's folder, as a process has it.
func (t *try) out(rank int) string { return filepath.Join(t.folder(rank), "out") }

// hosts is the hosts of one start.
func (c *campaign) hosts(ctx context.Context) (*slow.Hosts, error) {
	rate, err := slow.ParseRate("1gbit")
	if err != nil {
		return nil, err
	}
	return slow.Open(ctx, processes, 1, rate)
}

// disturb starts the training, loses a process and looks at how the others end.
func (c *campaign) disturb(ctx context.Context, w way, t *try, draw *rand.Rand, run string) (err error) {
	h, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	g, err := c.start(ctx, h, t, run, 0, processes, c.args(processes, "out"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.kill()) }()
	if t.moment, err = moment(ctx, draw, g, t.out(0)); err != nil {
		return err
	}
	began := time.Now()
	if err := w.lose(ctx, h, g, t.victim); err != nil {
		return err
	}
	var runs []*member
	for _, m := range g.all {
		if m.rank != t.victim || w.runs {
			runs = append(runs, m)
		}
	}
	last, ended := g.await(3*promptly, runs...)
	if t.took = last.Sub(began); !ended {
		t.took = time.Since(began)
	}
	if !ended || t.took > promptly {
		t.says("took %v to end", t.took.Round(time.Millisecond))
	}
	if w.stops {
		if err := syscall.Kill(g.all[t.victim].pid(), syscall.SIGCONT); err != nil {
			return err
		}
		if _, ended := g.await(promptly, g.all[t.victim]); !ended {
			t.says("rank %d goes on for over %v behind its stop", t.victim, promptly)
		}
		runs = g.all
	}
	t.named = true
	for _, m := range runs {
		if m.code() != 3 {
			t.says("rank %d ended with %d: %s", m.rank, m.code(), m.errors())
		}
		want := fmt.Sprintf("%d on host %s", t.victim, hostOf(t.victim))
		if said := m.errors(); m.rank != t.victim && !strings.Contains(said, want) || !strings.Contains(said, " is lost: ") {
			t.named = false
			t.says("rank %d says %q; want something about %q", m.rank, said, want)
		}
	}
	switch {
	case t.victim > 0 || w.runs:
		t.written(0)
	case t.own:
		t.written(1)
		t.written(2)
	default:
		t.written(1)
	}
	t.clean = true
	if left := g.left(); len(left) > 0 && ended {
		t.clean = false
		t.says("something that ranks %v have started is left", left)
	}
	return nil
}

// written looks at what the run's folder says of its end, as a process has it. Where a link is lost each side is right
// in its own way.
func (t *try) written(rank int) {
	var f struct {
		Rank     int
		ExitCode int `json:"exit_code"`
		Retry    bool
		Lost     *struct{ Rank int }
	}
	text, err := os.ReadFile(filepath.Join(t.out(rank), "error.json"))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.ExitCode != 3 || !f.Retry || f.Lost == nil || f.Lost.Rank != t.victim && f.Rank != t.victim {
		t.named = false
		t.says("error.json of %s says %s (%v)", hostOf(rank), text, err)
	}
}

// moment waits for one that is drawn: anywhere from the beginning of the steps on.
func moment(ctx context.Context, draw *rand.Rand, g *gang, out string) (string, error) {
	saved := draw.IntN(steps*4/5/saveEvery) * saveEvery
	pause := time.Duration(draw.Int64N(int64(200 * time.Millisecond)))
	late := time.After(patience)
	for {
		at, err := os.Stat(filepath.Join(out, "plan.json"))
		here := err == nil && at != nil
		if saved > 0 {
			later, _ := checkpoint.Later(filepath.Join(out, "checkpoints"), saved-1) // it may not be there yet
			here = len(later) > 0
		}
		if here {
			break
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-late:
			return "", fmt.Errorf("it does not come to step %d: %s", saved, g.all[0].said.String())
		case <-g.all[0].ended:
			return "", fmt.Errorf("it ends before step %d: %s", saved, g.all[0].said.String())
		case <-time.After(time.Millisecond):
		}
	}
	time.Sleep(pause)
	return fmt.Sprintf("%v behind step %d", pause.Round(time.Millisecond), saved), nil
}

// goOn starts the training again, or in fewer processes, and looks at what it leaves.
func (c *campaign) goOn(ctx context.Context, t *try, run string) (err error) {
	h, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	n, restart, args := processes, 1, c.args(processes, "out")
	t.again = "again in as many"
	if t.own {
		t.again += ", each with a folder of its own"
	}
	if t.fewer {
		n, restart, run = processes-1, 0, "f"+run[1:]
		args, t.again = c.args(n, "out", "--resume", filepath.Join("out", "checkpoints")), "on in fewer"
	}
	g, err := c.start(ctx, h, t, run, restart, n, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.kill()) }()
	if _, ended := g.await(patience, g.all...); !ended {
		t.says("%s, it does not end within %v: %s", t.again, patience, g.all[0].said.String())
		return nil
	}
	for _, m := range g.all {
		if m.code() != 0 {
			t.says("%s, rank %d ends with %d: %s", t.again, m.rank, m.code(), m.errors())
		}
	}
	if left := g.left(); len(left) > 0 {
		t.clean = false
		t.says("%s, something that ranks %v have started is left", t.again, left)
	}
	for rank := range processes {
		if err := tidy(t.out(rank)); err != nil {
			t.clean = false
			t.says("%s, %v", t.again, err)
		}
	}
	if err := t.gather(); err != nil {
		return err
	}
	whole := filepath.Join(c.scratch, "whole", "checkpoints")
	if err := same(whole, filepath.Join(t.out(0), "checkpoints")); err != nil {
		t.says("%s, %v", t.again, err)
		return nil
	}
	t.right = true
	return nil
}

// gather brings the files of the last checkpoint that other hosts have to the first.
func (t *try) gather() error {
	for rank := 1; t.own && rank < processes; rank++ {
		paths, err := filepath.Glob(filepath.Join(t.out(rank), "checkpoints", fmt.Sprintf("step-%08d", steps), "*"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			to := filepath.Join(t.out(0), "checkpoints", filepath.Base(filepath.Dir(path)), filepath.Base(path))
			if err := os.Rename(path, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidy says what a run that has ended well should not have left.
func tidy(out string) error {
	if _, err := os.Stat(filepath.Join(out, "error.json")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("error.json is left (%v)", err)
	}
	half, err := filepath.Glob(filepath.Join(out, "checkpoints", "*.partial"))
	if err == nil && len(half) > 0 {
		err = fmt.Errorf("half-written checkpoints are left: %v", half)
	}
	return err
}

// same compares the last checkpoints of two folders bit by bit.
func same(a, b string) (err error) {
	var of [2]*checkpoint.Checkpoint
	for i, path := range []string{a, b} {
		if of[i], err = checkpoint.Open(path); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, of[i].Close()) }()
	}
	if x, y := of[0].Manifest.Steps, of[1].Manifest.Steps; x != y {
		return fmt.Errorf("%d steps are done; want %d", y, x)
	}
	for _, name := range of[0].Names() {
		x, err := of[0].Tensor(name)
		if err != nil {
			return err
		}
		if y, err := of[1].Tensor(name); err != nil || !bytes.Equal(x.Data, y.Data) {
			return fmt.Errorf("the weights are not those of a training that nobody has disturbed: %s (%v)", name, err)
		}
	}
	return nil
}
