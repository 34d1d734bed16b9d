package versus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/child"
)

// Build is one of the two compared programs.
type Build struct {
	Name   string `json:"name"`             // old or new; threads or processes
	Commit string `json:"commit,omitempty"` // commit of the build; "+" at its end: files were changed
	SHA256 string `json:"sha256"`
	// Processes is the number of processes of each training. The build launches them itself; 0: a single process.
	Processes int `json:"processes,omitempty"`
	path      string
	native    string // path of a native library; empty: the program finds its own
	dir       string // folder in which the program runs and keeps its profiles
}

// OpenBuild returns a build of a program with its native library, and with its own folder to run in. If `native` is
// empty, the program finds its own library.
func OpenBuild(name, path, native, dir string) (*Build, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("versus: %w", err)
	}
	text, err := os.ReadFile(absolute)
	if err != nil {
		return nil, fmt.Errorf("versus: the %s build: %w", name, err)
	}
	if native != "" {
		if native, err = filepath.Abs(native); err != nil {
			return nil, fmt.Errorf("versus: %w", err)
		}
	}
	sum := sha256.Sum256(text)
	b := &Build{Name: name, Commit: commit(absolute), SHA256: hex.EncodeToString(sum[:]), path: absolute, native: native,
		dir: filepath.Join(dir, name)}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, fmt.Errorf("versus: %w", err)
	}
	return b, nil
}

// called returns the build's name. For a nil build it returns the parameter `otherwise`.
func (b *Build) called(otherwise string) string {
	if b == nil {
		return otherwise
	}
	return b.Name
}

// commit returns the commit in a Go program's build information; "" if it has none.
func commit(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "" // not a Go program
	}
	said := map[string]string{}
	for _, s := range info.Settings {
		said[s.Key] = s.Value
	}
	if said["vcs.modified"] == "true" {
		return said["vcs.revision"] + "+"
	}
	return said["vcs.revision"]
}

// run runs the program, and returns its output and the time from start to end.
func (b *Build) run(ctx context.Context, args ...string) (out []byte, seconds float64, err error) {
	c := child.Command(ctx, b.path, args...)
	c.Dir = b.dir
	c.Env = b.environment()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	began := time.Now()
	err = c.Run()
	seconds = time.Since(began).Seconds()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return nil, 0, fmt.Errorf("versus: the %s build: millrace %s: %w: %s", b.Name, strings.Join(args, " "), err,
			lines[len(lines)-1])
	}
	return stdout.Bytes(), seconds, nil
}

// environment returns this process's environment with the build's own cache, library and temporary files. It removes
// OPENBLAS_CORETYPE, so that the BLAS chooses the processor's kernels.
func (b *Build) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "OPENBLAS_CORETYPE" || name == "MILLRACE_NATIVE" || name == "XDG_CACHE_HOME" || name == "TMPDIR"
	})
	env = append(env, "XDG_CACHE_HOME="+filepath.Join(b.dir, "cache"), "TMPDIR="+b.dir)
	if b.native != "" {
		env = append(env, "MILLRACE_NATIVE="+b.native)
	}
	return env
}

// answer runs the program and decodes the JSON that it prints.
func (b *Build) answer(ctx context.Context, into any, args ...string) error {
	out, _, err := b.run(ctx, append(args, "--json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("versus: the %s build: millrace %s: %w", b.Name, strings.Join(args, " "), err)
	}
	return nil
}

// took returns how long the program takes with these arguments, in seconds.
func (b *Build) took(ctx context.Context, args ...string) (float64, error) {
	_, seconds, err := b.run(ctx, args...)
	return seconds, err
}

// trained is the output of a training.
type trained struct {
	Loss      float64 `json:"loss"`
	Predicted float64 `json:"predicted_step_s"`
	Measured  float64 `json:"measured_step_s"`
}

// train trains some steps with only one evaluation row. With several processes it uses launch.
func (b *Build) train(ctx context.Context, steps int, settings ...string) (trained, error) {
	args := append([]string{"train", "--steps", fmt.Sprint(steps), "--eval-rows", "1", "--out", "run", "--overwrite"},
		settings...)
	if b.Processes > 1 {
		args = append([]string{"launch", "-n", fmt.Sprint(b.Processes), "--"}, args...)
	}
	var t trained
	if err := b.answer(ctx, &t, args...); err != nil {
		return t, err
	}
	if !(t.Measured > 0) || !(t.Predicted > 0) {
		return t, fmt.Errorf("versus: the %s build: a training predicts a step of %v s and measures %v s", b.Name,
			t.Predicted, t.Measured)
	}
	return t, nil
}

// errNoPlan is the error for a build's plan that cannot be read.
var errNoPlan = errors.New("its plan names no stages")

// shape is the part of a plan that flags can fix.
type shape struct {
	Plan struct {
		Stages []struct {
			FirstLayer int `json:"first_layer"`
		} `json:"stages"`
		MicroBatches int    `json:"micro_batches"`
		Schedule     string `json:"schedule"`
	} `json:"plan"`
}

// planned asks a build for a plan, and returns the flags with which any build makes the same plan.
func (b *Build) planned(ctx context.Context, settings ...string) ([]string, error) {
	var s shape
	if err := b.answer(ctx, &s, append([]string{"plan"}, settings...)...); err != nil {
		return nil, err
	}
	if len(s.Plan.Stages) == 0 || s.Plan.MicroBatches < 1 {
		return nil, fmt.Errorf("versus: the %s build: %w", b.Name, errNoPlan)
	}
	var cuts []string
	for _, st := range s.Plan.Stages[1:] {
		cuts = append(cuts, fmt.Sprint(st.FirstLayer))
	}
	return []string{"--split", strings.Join(cuts, ","), "--schedule", s.Plan.Schedule,
		"--micro-batches", fmt.Sprint(s.Plan.MicroBatches), "--recompute", "none"}, nil
}
