package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// attackKills kills trainings without notice, and takes each to its end.
func attackKills(ctx context.Context, a *attack, want int) (*tally, error) {
	t := &tally{want: want}
	var saving, early, late atomic.Int64
	err := a.each(ctx, want, func(i int) error {
		if a.one != "" && a.one != fmt.Sprint(i) {
			t.done.Add(1)
			return nil
		}
		when, f, err := a.kill(ctx, i)
		if err != nil {
			return fmt.Errorf("kill %d: %w", i, err)
		}
		t.add(f)
		switch when {
		case whileSaving:
			saving.Add(1)
		case beforeSaving:
			early.Add(1)
		case behindTheEnd:
			late.Add(1)
		}
		return nil
	})
	t.say("%d while a checkpoint was written, %d in front of the first, %d behind the end",
		saving.Load(), early.Load(), late.Load())
	return t, err
}

// instant is when a training was killed.
type instant int

const (
	between instant = iota // two checkpoints
	whileSaving
	beforeSaving
	behindTheEnd
)

// kill makes the kill of this number, which decides the training, the instant and how it goes on. Every
// other one waits for a checkpoint that is being written.
func (a *attack) kill(ctx context.Context, number int) (when instant, f *finding, err error) {
	r := seeded(a.seed+1, uint64(number))
	t := &trainings[number%len(trainings)]
	dir, err := os.MkdirTemp(a.scratch, "kill-")
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	whole, err := a.reference(ctx, t)
	if err != nil {
		return 0, nil, err
	}
	saves := filepath.Join(dir, "out", "checkpoints")
	after := time.Duration(r.Int64N(int64(whole.took)))
	waits := number/len(trainings)%2 == 1
	skipped := r.IntN(20)
	deep := time.Duration(r.Int64N(int64(4 * time.Millisecond)))
	c := command{dir: dir, home: dir, args: a.trainArgs(t.args, ""), limits: usual, meanwhile: func(pid int) {
		if !waits {
			pause(ctx, after)
		} else {
			awaitDraft(ctx, pid, saves, skipped)
			pause(ctx, deep)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}}
	e, err := a.run(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	when = phase(saves, e)
	args := t.args
	if n := r.IntN(1 + 2*len(t.others)); n < len(t.others) {
		args = t.others[n]
	}
	wrong, last, err := a.finish(ctx, t, args, dir, true)
	if err != nil {
		return 0, nil, err
	}
	name := fmt.Sprintf("kill %d of %s", number, t.name)
	if f = a.found(name, last, nil, wrong); f != nil {
		err = a.keepFolder(f, dir)
		f.repeat = fmt.Sprintf("make attack ATTACK='--only kills --case %d --seed %d'; its folder: %s", number, a.seed, f.kept)
	}
	return when, f, err
}

// pause waits for a time, or until the context is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// awaitDraft waits until a process has begun some checkpoints and is writing one more, or has ended.
func awaitDraft(ctx context.Context, pid int, saves string, skip int) {
	last := ""
	for ctx.Err() == nil && residentOf(pid) > 0 {
		entries, _ := os.ReadDir(saves) // it is not there yet at the beginning
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".partial") && name != last {
				if skip--; skip < 0 {
					return
				}
				last = name
			}
		}
		pause(ctx, 300*time.Microsecond)
	}
}

// phase says when a training was killed, from what it left.
func phase(saves string, e *ended) instant {
	if e.signal == 0 {
		return behindTheEnd
	}
	entries, _ := os.ReadDir(saves)
	whole := false
	for _, entry := range entries {
		if unfinished.MatchString(entry.Name()) {
			return whileSaving
		}
		whole = true
	}
	if !whole {
		return beforeSaving
	}
	return between
}
