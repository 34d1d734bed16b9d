package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

const (
	processes = 3
	steps     = 600
	saveEvery = 20
	promptly  = 10 * time.Second // within which every process that can run must end
	patience  = 2 * time.Minute  // for everything else
)

// training holds the arguments of the disturbed training, without its plan. A step has two micro-batches.
var training = append(strings.Fields("train --model mlp --data digits --batch 32 --micro-batch 16 --clip 1 --keep 3 "+
	"--eval-rows 8"), "--steps", fmt.Sprint(steps), "--save-every", fmt.Sprint(saveEvery))

// args returns the arguments of a training in the folder `out`. A way with native collectives gets the plan in the file
// `replicas`. For other ways, `workers` is the number of stages; 0 lets millrace choose them.
func (c *campaign) args(w way, workers int, out string, more ...string) []string {
	args := append(training[:len(training):len(training)], "--out", out)
	switch {
	case w.native:
		args = append(args, "--plan", filepath.Join(c.scratch, replicas), "--collectives", "native")
	case workers == 0:
		args = append(args, "--schedule", "1f1b")
	default:
		args = append(args, "--schedule", "1f1b", "--stages", fmt.Sprint(workers))
	}
	return append(args, more...)
}

// replicas is the file of a plan with one stage on all workers. The plan is made for one machine, because between hosts
// a planner might choose a single worker. Then no gradients would be summed.
const replicas = "replicas.json"

// profile returns the arguments with which a training uses the profile that prepare measured.
func (c *campaign) profile() []string {
	return []string{"--profile", filepath.Join(c.scratch, "profile.json")}
}

// whole returns the folder of the undisturbed training.
func (w way) whole() string {
	if w.native {
		return "whole-native"
	}
	return "whole"
}

// prepare makes the profile, and trains to the end without a fault to get the weights that every try must reach. Gloo
// rounds sums differently, so ways with native collectives get an undisturbed training of their own.
func (c *campaign) prepare(ctx context.Context, ways []way) error {
	all := fmt.Sprint(processes)
	lines := [][]string{strings.Fields("profile --model mlp --sizes 16 --batch 32 --passes 1 -o profile.json")}
	for _, w := range []way{{}, {native: true}} {
		args := c.args(w, processes, w.whole(), c.profile()...)
		switch {
		case !slices.ContainsFunc(ways, func(other way) bool { return other.native == w.native }):
		case w.native:
			planned := strings.Fields("plan --model mlp --profile profile.json --batch 32 --micro-batch 16 --stages 1 " +
				"--schedule dp -o " + replicas)
			lines = append(lines, append(planned, "--workers", all), append([]string{"launch", "-n", all, "--"}, args...))
		default:
			lines = append(lines, append(args, "--workers", all))
		}
	}
	for _, args := range lines {
		p := exec.CommandContext(ctx, c.millrace, args...)
		p.Dir, p.Env = c.scratch, c.env()
		if out, err := p.CombinedOutput(); err != nil {
			return fmt.Errorf("faults: millrace %s: %w, so that there is nothing to disturb:\n%s", strings.Join(args, " "), err,
				out)
		}
	}
	return nil
}

// try is one fault with its consequences.
type try struct {
	number, victim int
	moment         string        // when the process was lost
	took           time.Duration // from the loss until all processes that can run had ended
	again          string        // how the training continued
	named          bool          // every process named the lost process
	right          bool          // the weights are those of the undisturbed training
	clean          bool          // nothing was left behind
	fewer          bool          // the training continues with fewer processes
	own            bool          // every host has a folder of its own
	launched       bool          // millrace launch starts all processes, also when the training continues
	measures       bool          // the process is lost while another one measures
	dir            string        // parent of the hosts' folders, or the folder of all hosts
	wrong          []string      // a sentence for each thing that went wrong
	kept           string        // `dir`, if the folder was kept
}

// says records a failure.
func (t *try) says(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

// try makes one try of a way. The number of the try decides its variant. The number, the seed and the way decide all
// random choices.
func (c *campaign) try(ctx context.Context, w way, number int) (_ *try, err error) {
	draw := rand.New(rand.NewPCG(c.seed, uint64(number)<<8|uint64(len(w.name))))
	t := &try{number: number, victim: w.victims[draw.IntN(len(w.victims))], named: true, clean: true,
		launched: number%4 == 1, own: number%4 == 2, fewer: number%4 == 3 && !w.native, measures: number%8 == 4}
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
	if t.launched {
		return t, c.launched(ctx, w, t, draw)
	}
	run := fmt.Sprintf("%016x", draw.Uint64())
	if err := c.disturb(ctx, w, t, draw, run); err != nil {
		return nil, err
	}
	return t, c.goOn(ctx, w, t, run)
}

// folder returns the folder in which a process runs.
func (t *try) folder(rank int) string {
	if t.own {
		return filepath.Join(t.dir, t.host(rank))
	}
	return t.dir
}

// host returns the name of a process's host. Under launch the name is the host's address.
func (t *try) host(rank int) string {
	if t.launched {
		return slow.Address(rank)
	}
	return fmt.Sprintf("host%d", rank)
}

// out returns the run's folder as a process sees it.
func (t *try) out(rank int) string { return filepath.Join(t.folder(rank), "out") }

// hosts opens a host for each process. Every start of the training gets new hosts.
func (c *campaign) hosts(ctx context.Context) (*slow.Hosts, error) {
	rate, err := slow.ParseRate("1gbit")
	if err != nil {
		return nil, err
	}
	return slow.Open(ctx, processes, 1, rate)
}

// disturb starts the training, loses a process, and checks how the others end: in time, with exit code 3, naming the
// lost process, and leaving nothing.
func (c *campaign) disturb(ctx context.Context, w way, t *try, draw *rand.Rand, run string) (err error) {
	h, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	args := c.args(w, processes, "out")
	if !t.measures {
		args = append(args, c.profile()...)
	}
	g, err := c.start(ctx, h, t, run, 0, processes, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.kill()) }()
	if err := t.await(ctx, draw, g); err != nil {
		return err
	}
	began := time.Now()
	if err := w.lose(ctx, h, t.victim, g.all[t.victim].pid()); err != nil {
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
	for _, m := range runs {
		if m.code() != 3 {
			t.says("rank %d ended with %d: %s", m.rank, m.code(), m.errors())
		}
		t.names(m.rank, m.errors())
	}
	switch {
	case t.victim > 0 || w.runs:
		t.written(w, 0)
	case t.own:
		t.written(w, 1)
		t.written(w, 2)
	default:
		t.written(w, 1)
	}
	if !ended {
		return nil // some processes have not ended, so it is not checked that none is left
	}
	return t.nothingLeft(g)
}

// await waits until a random moment in the first half of the steps, so that the fault comes before the end. In a try
// that measures, it waits until some host runs a second process, which is a child process that measures. Then it waits
// a random time of less than 0.2 s.
func (t *try) await(ctx context.Context, draw *rand.Rand, g *gang) error {
	saved := draw.IntN(steps/2/saveEvery) * saveEvery
	pause := time.Duration(draw.Int64N(int64(200 * time.Millisecond)))
	what := fmt.Sprintf("step %d", saved)
	here := func() (bool, error) {
		later, _ := checkpoint.Later(filepath.Join(t.out(0), "checkpoints"), saved-1) // the folder may not exist yet
		return len(later) > 0, nil
	}
	switch {
	case t.measures:
		what = "a measurement's begin"
		here = func() (bool, error) {
			all, err := g.hosts.Running()
			return slices.ContainsFunc(all, func(on []int) bool { return len(on) > 1 }), err
		}
	case saved == 0:
		here = func() (bool, error) {
			_, err := os.Stat(filepath.Join(t.out(0), "plan.json"))
			return err == nil, nil
		}
	}
	late := time.After(patience)
	for {
		if is, err := here(); err != nil {
			return err
		} else if is {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("it does not come to %s: %s", what, g.all[0].said.String())
		case <-g.all[0].ended:
			return fmt.Errorf("it ends before %s: %s", what, g.all[0].said.String())
		case <-time.After(time.Millisecond):
		}
	}
	time.Sleep(pause)
	t.moment = fmt.Sprintf("%v behind %s", pause.Round(time.Millisecond), what)
	return nil
}

// goOn starts the training again, with the same number of processes or with fewer, and checks that it ends well.
func (c *campaign) goOn(ctx context.Context, w way, t *try, run string) (err error) {
	h, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	n, restart, args := processes, 1, c.args(w, processes, "out", c.profile()...)
	t.again = "again in as many"
	if t.own {
		t.again += ", each with a folder of its own"
	}
	if t.fewer {
		n, restart, run = processes-1, 0, "f"+run[1:]
		args = append(c.args(w, n, "out", c.profile()...), "--resume", filepath.Join("out", "checkpoints"))
		t.again = "on in fewer"
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
	return t.judge(c, w, g)
}
