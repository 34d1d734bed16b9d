package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// options is the command line.
type options struct {
	against, check, output, only string
	carrier                      string
	jobs                         int
}

// refusal is an error of the user's to mend: exit code 2.
type refusal struct{ error }

func main() { os.Exit(execute(os.Args[1:])) }

// execute is main without the exit.
func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	o := options{jobs: runtime.NumCPU()}
	flags := flag.NewFlagSet("runs", flag.ContinueOnError)
	flags.StringVar(&o.against, "against", "", "build this `commit` beside, and compare with what it leaves here")
	flags.StringVar(&o.check, "check", "", "compare with the hashes in this `file`")
	flags.StringVar(&o.output, "o", "", "write the hashes to this `file`, whose name ends in "+ending)
	flags.StringVar(&o.only, "only", "", "the runs whose names match this `regexp`")
	flags.StringVar(&o.carrier, "carrier", "", "what messages go over here: in-process, pipe or blocking")
	flags.IntVar(&o.jobs, "j", o.jobs, "runs at a time")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	fine, err := o.run(ctx, flags.Args())
	var refused refusal
	switch {
	case errors.As(err, &refused):
		fmt.Fprintf(os.Stderr, "runs: %v\n", err)
		return 2
	case err != nil:
		fmt.Fprintf(os.Stderr, "runs: %v\n", err)
		return 1
	case !fine:
		return 1
	}
	return 0
}

// chosen is the runs to train; a run that another is held to is not taken in for it.
func (o options) chosen() ([]run, error) {
	pattern, err := regexp.Compile(o.only)
	if err != nil {
		return nil, refusal{fmt.Errorf("--only: %w", err)}
	}
	var runs []run
	for _, r := range list {
		if pattern.MatchString(r.Name) {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, refusal{fmt.Errorf("--only %s: no run has such a name", o.only)}
	}
	return runs, nil
}

// run does what the command line asks for, and says whether all is as it must be.
func (o options) run(ctx context.Context, rest []string) (fine bool, err error) {
	switch {
	case len(rest) > 0:
		return false, refusal{fmt.Errorf("%q: there are flags only; see -h", rest[0])}
	case o.against != "" && o.check != "":
		return false, refusal{errors.New("--against and --check are two things to compare with; give one")}
	case o.output != "" && o.only != "":
		return false, refusal{errors.New("-o writes the hashes of the whole list; leave out --only")}
	case !slices.Contains([]string{"", "in-process", "pipe", "blocking"}, o.carrier):
		return false, refusal{fmt.Errorf("--carrier %s; it is in-process, pipe or blocking", o.carrier)}
	case o.jobs < 1:
		return false, refusal{fmt.Errorf("-j %d; it is 1 at least", o.jobs)}
	}
	if o.output != "" {
		if err := nameOfHashes(o.output); err != nil {
			return false, refusal{err}
		}
	}
	runs, err := o.chosen()
	if err != nil {
		return false, err
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return false, refusal{err}
	}
	work, err := os.MkdirTemp("", "millrace-runs-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	began := time.Now()
	here, err := ready(ctx, root, filepath.Join(work, "here"))
	if err != nil {
		return false, err
	}
	here.carrier = o.carrier
	at, err := environmentOf(ctx, here)
	if err != nil {
		return false, err
	}
	c := &comparison{here: here, jobs: o.jobs}
	if o.check != "" {
		if c.file, err = readHashes(o.check, at, digest(list, subjects)); err != nil {
			return false, refusal{err}
		}
	}
	if o.against != "" {
		commit, err := git(ctx, "-C", root, "rev-parse", "--verify", "--quiet", o.against+"^{commit}")
		if err != nil {
			return false, refusal{fmt.Errorf("--against %s: there is no such commit here", o.against)}
		}
		tree := filepath.Join(work, "tree")
		if err := checkout(ctx, root, commit, tree); err != nil {
			return false, err
		}
		if c.there, err = ready(ctx, tree, filepath.Join(work, "there")); err != nil {
			return false, err
		}
		c.exceptions = expected[commit]
	}
	fmt.Printf("%d runs on %s; %s; libtorch %s\n", len(runs), at.CPU, at.BLAS, at.Torch)
	fine, found := c.train(ctx, runs, os.Stdout)
	if ctx.Err() != nil {
		return false, errors.New("stopped")
	}
	fmt.Printf("%.0f s\n", time.Since(began).Seconds())
	if o.output == "" {
		return fine, nil
	}
	h := &hashes{Commit: commitOf(ctx, root), Environment: at, List: digest(list, subjects), Runs: found}
	return fine, h.write(o.output)
}

// ready builds a source tree and furnishes a folder for its runs.
func ready(ctx context.Context, root, folder string) (*side, error) {
	s, err := build(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	return s, s.furnish(ctx, folder)
}

// commitOf names the tree at root.
func commitOf(ctx context.Context, root string) string {
	commit, err := git(ctx, "-C", root, "rev-parse", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changed, err := git(ctx, "-C", root, "status", "--porcelain"); err != nil || changed != "" {
		commit += "+"
	}
	return commit
}
