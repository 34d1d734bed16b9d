package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/lab/slow"
)

// Options says what to train and what to compare it with.
type Options struct {
	Against string // a commit to build, which trains the same runs
	Check   string // a file of hashes to compare with
	Output  string // file for the hashes
	Only    string // a regular expression for the names of runs
	Carrier string // carrier of messages in this tree's runs; "": the usual one
	Jobs    int    // runs at a time
	// Processes trains each run of this tree in one process for each worker, by millrace launch. Namespaces puts half
	// of the processes into each of two network namespaces.
	Processes, Namespaces bool
}

// fast is a link rate that these runs never reach.
var fast = slow.Rate{Name: "10gbit", BitsPerSecond: 1e10}

// Refusal is an error that the user can correct.
type Refusal struct{ error }

// chosen returns the runs whose names match Only. It does not add a run only because another run names it in Like.
func (o Options) chosen() ([]run, error) {
	pattern, err := regexp.Compile(o.Only)
	if err != nil {
		return nil, Refusal{fmt.Errorf("--only: %w", err)}
	}
	var runs []run
	for _, r := range list {
		if pattern.MatchString(r.Name) {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, Refusal{fmt.Errorf("--only %s: no run has such a name", o.Only)}
	}
	return runs, nil
}

// check refuses options that contradict each other, and unknown values.
func (o Options) check() error {
	switch {
	case o.Against != "" && o.Check != "":
		return errors.New("--against and --check are two things to compare with; give one")
	case o.Output != "" && o.Only != "":
		return errors.New("-o writes the hashes of the whole list; leave out --only")
	case !slices.Contains([]string{"", "in-process", "pipe", "blocking", "tcp"}, o.Carrier):
		return fmt.Errorf("--carrier %s; it is in-process, pipe, blocking or tcp", o.Carrier)
	case o.Carrier != "" && (o.Processes || o.Namespaces):
		return errors.New("--carrier is of one process, and --processes and --netns have several; leave one out")
	case o.Jobs < 1:
		return fmt.Errorf("-j %d; it is 1 at least", o.Jobs)
	}
	if o.Output == "" {
		return nil
	}
	return nameOfHashes(o.Output)
}

// Run trains the runs, prints a line for each, and reports whether all are as expected.
func (o Options) Run(ctx context.Context, out io.Writer) (fine bool, err error) {
	if err := o.check(); err != nil {
		return false, Refusal{err}
	}
	runs, err := o.chosen()
	if err != nil {
		return false, err
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return false, Refusal{err}
	}
	work, remove, err := document.Scratch("millrace-runs-")
	if err != nil {
		return false, err
	}
	defer remove()
	began := time.Now()
	here, err := ready(ctx, root, filepath.Join(work, "here"))
	if err != nil {
		return false, err
	}
	here.carrier, here.spread.processes = o.Carrier, o.Processes || o.Namespaces
	if o.Namespaces {
		if here.spread.hosts, err = slow.Open(ctx, 2, 1, fast); err != nil {
			return false, Refusal{err}
		}
		defer func() { err = errors.Join(err, here.spread.hosts.Close()) }()
	}
	at, err := environmentOf(ctx, here)
	if err != nil {
		return false, err
	}
	c := &comparison{here: here, jobs: o.Jobs}
	if o.Check != "" {
		if c.file, err = readHashes(o.Check, at, digest(list, subjects)); err != nil {
			return false, Refusal{err}
		}
	}
	if o.Against != "" {
		commit, err := git(ctx, "-C", root, "rev-parse", "--verify", "--quiet", o.Against+"^{commit}")
		if err != nil {
			return false, Refusal{fmt.Errorf("--against %s: there is no such commit here", o.Against)}
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
	fmt.Fprintf(out, "%d runs on %s; %s; libtorch %s\n", len(runs), at.CPU, at.BLAS, at.Torch)
	fine, found := c.train(ctx, runs, out)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	fmt.Fprintf(out, "%.0f s\n", time.Since(began).Seconds())
	if o.Output == "" {
		return fine, nil
	}
	h := &hashes{Commit: commitOf(ctx, root), Environment: at, List: digest(list, subjects), Runs: found}
	return fine, h.write(o.Output)
}

// ready builds a source tree and prepares a folder for its runs.
func ready(ctx context.Context, root, folder string) (*side, error) {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	s, err := build(ctx, root, folder)
	if err != nil {
		return nil, err
	}
	return s, s.furnish(ctx)
}

// commitOf returns the commit of the tree at `root`, with a "+" if files were changed. It is "unknown" if git fails.
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
