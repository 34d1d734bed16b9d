package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

//go:embed testdata
var testdata embed.FS

// attackInputs runs the table of bad inputs, or those whose name contains the value of --case. With a share below 1, it
// leaves out slow inputs.
func attackInputs(ctx context.Context, a *attack, _ int) (*tally, error) {
	table, err := fs.Sub(testdata, "testdata/inputs")
	if err != nil {
		return nil, err
	}
	if a.table != "" {
		table = os.DirFS(a.table)
	}
	all, err := readInputs(table)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(in input) bool {
		return !strings.Contains(in.name, a.one) || in.slow && a.share < 1
	})
	t := &tally{want: len(all)}
	var refused, passed atomic.Int64
	err = a.each(ctx, len(all), func(i int) error {
		f, err := a.attackInput(ctx, &all[i])
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].where, err)
		}
		t.add(f)
		if all[i].code == 0 {
			passed.Add(1)
		} else {
			refused.Add(1)
		}
		return nil
	})
	t.say("%d that must be refused, %d that must pass", refused.Load(), passed.Load())
	return t, err
}

// brief are the limits for a command with a bad or mutated input. Most such commands end before any computation; the
// generous time allows for a busy machine.
var brief = limits{wall: 30 * time.Second, address: usual.address, resident: usual.resident}

// attackInput creates an input's files in a new folder, runs its command, and returns what was wrong.
func (a *attack) attackInput(ctx context.Context, in *input) (*finding, error) {
	home, err := os.MkdirTemp(a.scratch, "input-")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(home, "here", "work") // deep enough that a path with .. stays inside home
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for i := range in.files {
		if err := in.files[i].make(dir, a.fixtures); err != nil {
			return nil, err
		}
	}
	for _, args := range in.prepare {
		e, err := a.run(ctx, a.commandOf(dir, home, args))
		if err != nil {
			return nil, err
		}
		if e.code != 0 {
			wrong := fmt.Sprintf("needs a command to pass that ends with %d: %s", e.code, e.last())
			f := a.found(in.name, a.commandOf(dir, home, args), e, []string{wrong})
			return f, errors.Join(a.keepFolder(f, home), os.RemoveAll(home))
		}
	}
	if err := os.MkdirAll(filepath.Join(home, "tmp"), 0o755); err != nil {
		return nil, err
	}
	before, err := treeOf(home)
	if err != nil {
		return nil, err
	}
	c := a.commandOf(dir, home, in.command)
	e, err := a.run(ctx, c)
	if err != nil {
		return nil, err
	}
	after, err := treeOf(home)
	if err != nil {
		return nil, err
	}
	f := a.found(in.name, c, e, in.wrong(e, c.limits, before, after))
	return f, errors.Join(a.keepFolder(f, home), os.RemoveAll(home))
}

// commandOf returns a call of millrace in a folder. Leading words such as NAME=value are its environment.
func (a *attack) commandOf(dir, home string, words []string) command {
	c := command{dir: dir, home: home, limits: brief}
	for len(words) > 0 {
		name, _, set := strings.Cut(words[0], "=")
		if !set || name == "" || strings.HasPrefix(name, "-") {
			break
		}
		c.env, words = append(c.env, words[0]), words[1:]
	}
	c.args = a.words(words)
	return c
}

// wrong lists what the command of a bad input did wrong.
func (in *input) wrong(e *ended, l limits, before, after tree) []string {
	found := e.faults(l)
	if e.hung || e.overgrown {
		return found
	}
	if e.code != in.code {
		found = append(found, fmt.Sprintf("ended with %d, which must be %d", e.code, in.code))
	}
	said := string(e.err)
	if in.code == 0 {
		said += string(e.out)
	}
	for _, phrase := range in.says {
		if !strings.Contains(strings.ToLower(said), strings.ToLower(phrase)) {
			found = append(found, fmt.Sprintf("does not say %q but %s", phrase, clipped(said, 300)))
		}
	}
	if e.code == 2 {
		return append(found, after.changes(before, inCache)...)
	}
	found = append(found, after.halfWritten(before)...)
	return append(found, after.changes(before, inPlace)...)
}

// inPlace reports whether a command that was not refused may write to a path. It may write to its own folder, to the
// cache, and to the folder for temporary files.
func inPlace(path string) bool {
	return inCacheOrTemporary(path) || strings.HasPrefix(path, "tmp/") || strings.HasPrefix(path, "here/work/")
}

// inCache reports whether a path is in the cache, which keeps measured profiles.
func inCache(path string) bool { return path == "cache" || strings.HasPrefix(path, "cache/") }
