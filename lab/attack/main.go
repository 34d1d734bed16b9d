package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// attack holds the settings and results that all kinds of attack share.
type attack struct {
	millrace, native string // the program and its library
	lab              string // the program of experiments
	scratch          string // a folder that is deleted at the end
	fixtures         string // folder of valid files, which stay unchanged
	keep             string // folder for the files of findings; empty: the files are not kept
	seed             uint64
	table            string // a folder with a table of inputs instead of the built-in one
	one              string // the only input, or the number of the only attack; empty: all
	parallel         int
	share            float64 // fraction of the random attacks to make
	undisturbed      references
}

type kind struct {
	name string
	what string
	want int           // number of attacks, unless the kind decides it
	time time.Duration // the kind's share of the time
	make func(ctx context.Context, a *attack, want int) (*tally, error)
}

// The preparations and all kinds end within wholeTime, each kind within its share. If only some kinds are chosen, the
// first of them also gets the shares of the kinds that are not chosen.
const (
	wholeTime = 24 * time.Minute
	preparing = 5 * time.Minute
)

var kinds = []kind{
	{"inputs", "bad inputs by hand", 0, 200 * time.Second, attackInputs},
	{"mutated", "mutated inputs", 3000, 380 * time.Second, attackMutated},
	{"kills", "kill -9 of a training, each resumed to the end", 60, 190 * time.Second, attackKills},
	{"signals", "signals at random instants", 30, 180 * time.Second, attackSignals},
	{"flips", "bits of a checkpoint flipped", 0, 60 * time.Second, attackFlips},
	{"disks", "disks that are full", 10, 60 * time.Second, attackDisks},
	{"memory", "sizes of address space", 15, 60 * time.Second, attackMemory},
}

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute is main without the exit.
func execute(args []string, out, errs io.Writer) int {
	var a attack
	var only string
	flags := flag.NewFlagSet("attack", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&a.millrace, "millrace", "bin/millrace", "the program to attack")
	flags.StringVar(&a.lab, "lab", "bin/millrace-lab", "the program of experiments, attacked too")
	flags.StringVar(&a.native, "native", "build/libmillrace_native.so", "its native library")
	flags.StringVar(&a.keep, "keep", "build/attack", "folder for the files of what is found")
	flags.StringVar(&only, "only", "", "kinds to attack with, with commas: "+strings.Join(names(), ", "))
	flags.StringVar(&a.table, "inputs", "", "a folder with other bad inputs than those of lab/attack/testdata/inputs")
	flags.StringVar(&a.one, "case", "", "the only input, by a part of its name, or the number of the only attack")
	flags.Uint64Var(&a.seed, "seed", 1, "of what is drawn at random")
	flags.Float64Var(&a.share, "share", 1, "part of the drawn attacks to make")
	flags.IntVar(&a.parallel, "parallel", runtime.NumCPU(), "attacks at once")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(only)
	if err == nil && (flags.NArg() > 0 || a.parallel < 1 || !(a.share > 0 && a.share <= 1)) {
		err = fmt.Errorf("attack: takes no arguments but flags, at least 1 at once, and a share over 0 up to 1")
	}
	if err == nil {
		err = a.begin()
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return 2
	}
	defer os.RemoveAll(a.scratch)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return a.all(ctx, chosen, out, errs)
}

func names() []string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// choose returns the kinds with these names; all if no name is given.
func choose(only string) ([]kind, error) {
	if only == "" {
		return kinds, nil
	}
	var chosen []kind
	for name := range strings.SplitSeq(only, ",") {
		at := -1
		for i, k := range kinds {
			if k.name == name {
				at = i
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("attack: there is no kind %q; there are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, kinds[at])
	}
	return chosen, nil
}

// begin makes paths absolute, deletes the folder --keep and creates the scratch folder.
func (a *attack) begin() error {
	for _, path := range []*string{&a.millrace, &a.lab, &a.native, &a.keep} {
		if *path == "" {
			continue
		}
		at, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = at
	}
	for _, path := range []string{a.millrace, a.lab, a.native} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("attack: %w; build it first: make build", err)
		}
	}
	if a.keep != "" {
		if err := os.RemoveAll(a.keep); err != nil {
			return fmt.Errorf("attack: %w", err)
		}
	}
	var err error
	a.scratch, err = os.MkdirTemp("", "millrace-attack-")
	return err
}

// all makes the attacks of these kinds and prints the results.
func (a *attack) all(ctx context.Context, chosen []kind, out, errs io.Writer) int {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, preparing)
	err := a.prepare(within)
	cancel()
	if err != nil {
		fmt.Fprintln(errs, "attack:", err)
		return 2
	}
	end := began.Add(wholeTime)
	for _, k := range chosen {
		end = end.Add(-k.time)
	}
	total, short := 0, 0
	for _, k := range chosen {
		end = end.Add(k.time) // includes the time that earlier kinds left
		at := time.Now()
		within, cancel := context.WithDeadline(ctx, end)
		t, err := k.make(within, a, int(float64(k.want)*a.share+0.5))
		cancel()
		if t == nil {
			t = &tally{}
		}
		fmt.Fprintf(out, "%s: %d of %d %s, %s, %s\n", k.name, t.done.Load(), t.want, k.what,
			terminal.Count(len(t.found), "finding"), terminal.Duration(time.Since(at).Seconds()))
		for _, note := range t.notes {
			fmt.Fprintf(out, "  %s\n", note)
		}
		for _, f := range t.found {
			f.print(out)
		}
		total += len(t.found)
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			fmt.Fprintf(errs, "attack: %s: %v\n", k.name, err)
			short++
		} else if int(t.done.Load()) < t.want {
			fmt.Fprintf(errs, "attack: %s: the time was over, or it was stopped, after %d of %d\n",
				k.name, t.done.Load(), t.want)
			short++
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Fprintf(out, "%d findings in %.0f s, seed %d\n", total, time.Since(began).Seconds(), a.seed)
	if total > 0 && a.keep != "" {
		if err := copyTree(filepath.Join(a.keep, "fixtures"), a.fixtures); err != nil {
			fmt.Fprintln(errs, "attack:", err)
		}
	}
	if total > 0 || short > 0 {
		return 1
	}
	return 0
}

// print prints a finding and how to repeat it.
func (f *finding) print(out io.Writer) {
	fmt.Fprintf(out, "  FOUND %s\n", f.name)
	for _, w := range f.wrong {
		fmt.Fprintf(out, "    it %s\n", w)
	}
	fmt.Fprintf(out, "    again: %s\n", f.repeat)
}
