package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/child"
)

// side is a built source tree, with a folder for the files of its runs.
type side struct {
	root    string
	binary  string
	native  string
	folder  string
	modelOf map[string]identity // by subject
	carrier string              // carrier that train must use; "": the usual one
	spread  spread
}

// identity is a model's name and ID in a plan.
type identity struct {
	Model string `json:"model"`
	ID    string `json:"model_id"`
}

// longest is the time after which a command counts as hanging. Each command takes about a second.
const longest = 2 * time.Minute

// library is the native library's file in the folder "build" of a source tree.
const library = "libmillrace_native.so"

// build compiles a source tree and its native library. Temporary files go to `folder`.
func build(ctx context.Context, root, folder string) (*side, error) {
	s := &side{root: root, folder: folder, binary: filepath.Join(root, "bin", "millrace"),
		native: filepath.Join(root, "build", library)}
	for _, command := range [][]string{
		{filepath.Join(root, "scripts", "native.sh"), s.native},
		{"go", "build", "-trimpath", "-o", s.binary, "./cmd/millrace"},
	} {
		c := child.Command(ctx, command[0], command[1:]...)
		c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=1", "TMPDIR="+folder)
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w\n%s", root, strings.Join(command, " "), err, out)
		}
	}
	return s, nil
}

// checkout clones the repository at `root` into an empty folder, at a commit. It also copies the native library.
// scripts/native.sh compiles the library again if its sources differ.
func checkout(ctx context.Context, root, commit, folder string) error {
	for _, args := range [][]string{
		{"clone", "--quiet", "--shared", "--no-checkout", root, folder},
		{"-C", folder, "checkout", "--quiet", "--detach", commit},
	} {
		if _, err := git(ctx, args...); err != nil {
			return err
		}
	}
	for _, name := range []string{library, library + ".sources"} {
		content, err := os.ReadFile(filepath.Join(root, "build", name))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(folder, "build"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "build", name), content, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// git runs git and returns what it prints, without the last newline.
func git(ctx context.Context, args ...string) (string, error) {
	c := child.Command(ctx, "git", args...)
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// furnish writes the input files of runs into the side's folder, and profiles each model.
func (s *side) furnish(ctx context.Context) error {
	s.modelOf = map[string]identity{}
	for name, content := range inputs() {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for name, sub := range subjects {
		args := []string{"profile", "--analytic", "--cluster", "lab.yaml", "--sizes", sizes, "--json",
			"-o", name + ".profile.json"}
		out, err := s.millrace(ctx, concatenate(args, sub.Model, sub.Optimizer)...)
		if err != nil {
			return err
		}
		var who identity
		if err := json.Unmarshal(out, &who); err != nil {
			return fmt.Errorf("profile --json of %s: %w", name, err)
		}
		s.modelOf[name] = who
	}
	return nil
}

// millrace runs a command line in the side's folder and returns its output. The error has the last line of stderr.
func (s *side) millrace(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	c := child.Command(ctx, s.binary, args...)
	c.Dir, c.Env = s.folder, s.environment()
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	err := c.Run()
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, fmt.Errorf("millrace %s: still running after %v", args[0], longest)
	case err != nil:
		return nil, fmt.Errorf("millrace %s: %w: %s", args[0], err, lastLine(complaint.String()))
	}
	return out.Bytes(), nil
}

func concatenate(parts ...[]string) (all []string) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
