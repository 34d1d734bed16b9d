package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/millrace-ml/millrace/internal/crash"
)

type finding struct {
	name    string   // name of the input, or number of the attack
	wrong   []string // what millrace did wrong
	repeat  string   // a command that repeats the finding
	kept    string   // the folder with the finding's files; empty if none are kept
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

// say adds a note that explains the counts to the reader.
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
	if err := copyTree(f.kept, home); err != nil {
		return err
	}
	f.repeat = strings.NewReplacer(home, f.kept, a.fixtures, filepath.Join(a.keep, "fixtures")).Replace(f.repeat)
	return os.WriteFile(filepath.Join(f.kept, "stderr.txt"), []byte(f.message), 0o644)
}

// copyTree copies a folder with the folders, regular files, links and pipes in it. It first removes what is at `to`. A
// link into the folder leads into the copy; other links lead where they did. A file's zeros take no room in the copy.
func copyTree(to, from string) error {
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(filepath.Dir(to), 0o755)); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(source string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, source)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch d.Type() {
		case fs.ModeDir:
			return os.MkdirAll(target, 0o755)
		case fs.ModeSymlink:
			leads, err := os.Readlink(source)
			if err != nil {
				return err
			}
			if below, err := filepath.Rel(from, leads); filepath.IsAbs(leads) && err == nil && filepath.IsLocal(below) {
				leads = filepath.Join(to, below)
			}
			return os.Symlink(leads, target)
		case fs.ModeNamedPipe:
			return syscall.Mkfifo(target, 0o644)
		case 0:
			return copyFile(target, source)
		}
		return nil // a socket or a device cannot be copied
	})
}

// copyFile copies a regular file, and skips pieces of zeros.
func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zeros, piece := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, piece)
		if !bytes.Equal(piece[:n], zeros[:n]) {
			if _, err := out.WriteAt(piece[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return out.Truncate(at)
		case err != nil:
			return err
		}
	}
}

// each calls the function `do` for 0 to n-1 on several goroutines, until the context is done. A goroutine whose call
// fails makes no more calls. The errors are returned at the end. A context that is done is not a failure: fewer attacks
// are then made than were wanted.
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
