package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace-ml/millrace/internal/crash"
)

type finding struct {
	name    string   // name of the input, or number of the attack
	wrong   []string // what millrace did wrong
	repeat  string   // a command that repeats it
	kept    string   // the folder with its files; empty if none are kept
	message string   // stderr of the command
}

// tally is the result of the attacks of one kind.
type tally struct {
	want  int
	done  atomic.Int64
	mu    sync.Mutex
	found []finding
	notes []string
}

// add counts an attack, and keeps its finding.
func (t *tally) add(f *finding) {
	t.done.Add(1)
	if f == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.found = append(t.found, *f)
}

// say adds a note on the counts for the reader.
func (t *tally) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// found returns a finding with these faults; nil if there are none.
func (a *attack) found(name string, c command, e *ended, wrong []string) *finding {
	if len(wrong) == 0 {
		return nil
	}
	f := &finding{name: name, wrong: wrong, repeat: c.quoted(a.program(c))}
	if e != nil {
		f.message = string(e.err)
	}
	return f
}

// keepFolder copies the folder of a finding below --keep, so that the finding can be repeated.
func (a *attack) keepFolder(f *finding, home string) error {
	if f == nil || a.keep == "" {
		return nil
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, f.name)
	f.kept = filepath.Join(a.keep, plain)
	if err := errors.Join(os.RemoveAll(f.kept), os.MkdirAll(filepath.Dir(f.kept), 0o755)); err != nil {
		return err
	}
	if err := copyTree(f.kept, home); err != nil {
		return err
	}
	f.repeat = strings.NewReplacer(home, f.kept, a.fixtures, filepath.Join(a.keep, "fixtures")).Replace(f.repeat)
	return os.WriteFile(filepath.Join(f.kept, "stderr.txt"), []byte(f.message), 0o644)
}

// copyTree copies a folder with the folders and regular files in it. Links are left out, because they may lead
// anywhere. Files larger than digested, pipes and the like are left out too.
func copyTree(to, from string) error {
	t, err := treeOf(from)
	if err != nil {
		return err
	}
	for name := range t {
		source, target := filepath.Join(from, name), filepath.Join(to, name)
		info, err := os.Lstat(source)
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			err = os.MkdirAll(target, 0o755)
		case info.Mode()&os.ModeSymlink != 0:
			// A link may lead anywhere, so it is left out.
		case info.Mode().IsRegular() && info.Size() <= digested:
			var text []byte
			if text, err = os.ReadFile(source); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls the function `do` for 0 to n-1, several at once, until the context is done. After an error, fewer calls
// run at once, and the error is returned at the end. A context that is done is not a failure: fewer attacks are then
// made than were wanted.
func (a *attack) each(ctx context.Context, n int, do func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make([]error, a.parallel)
	for w := range a.parallel {
		all.Go(crash.Caught(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil && ctx.Err() == nil {
					failed[w] = err
					return
				}
			}
		}))
	}
	all.Wait()
	return errors.Join(failed...)
}
