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

// attackKills kills trainings without warning, and then resumes each to its end.
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
		case behindLast:
			late.Add(1)
		}
		return nil
	})
	t.say("%d while a checkpoint was written, %d in front of the first, %d behind the last",
		saving.Load(), early.Load(), late.Load())
	return t, err
}

// instant says in which part of a training it was killed.
type instant int

// begun is the fraction of a training's duration after which a kill may come. Before that, the process does little more
// than load libtorch.
const begun = 0.3

const (
	between instant = iota // between two checkpoints
	whileSaving
	beforeSaving
	behindLast // after the last checkpoint, before or after the report
)

// kill kills a training and resumes it. The number of the kill decides which training is killed, when, and how it is
// resumed. Two of five kills come while a checkpoint is being written. One comes after the last checkpoint, during the
// evaluation and the report. The other two come at a random moment after the fraction `begun` of the training's
// duration.
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
	after := time.Duration((begun + (1-begun)*r.Float64()) * float64(whole.took))
	skipped := r.IntN(20)
	deep := time.Duration(r.Int64N(int64(4 * time.Millisecond)))
	c := command{dir: dir, home: dir, args: a.trainArgs(t.args, ""), limits: usual, meanwhile: func(pid int) {
		switch number / len(trainings) % 5 {
		case 1, 3:
			awaitDraft(ctx, pid, saves, skipped)
			pause(ctx, deep)
		case 4:
			await(ctx, pid, func() bool { return exists(finalOf(dir, steps)) })
			pause(ctx, 5*deep)
		default:
			pause(ctx, after)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}}
	if _, err := a.run(ctx, c); err != nil {
		return 0, nil, err
	}
	when = phase(saves)
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
		f.repeat = fmt.Sprintf("make attack ATTACK='--only kills --case %d --seed %d'; its folder: %s",
			number, a.seed, f.kept)
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

// await waits until the function `so` returns true, the process has ended, or the context is done.
func await(ctx context.Context, pid int, so func() bool) {
	for ctx.Err() == nil && residentOf(pid) > 0 && !so() {
		pause(ctx, 300*time.Microsecond)
	}
}

// awaitDraft waits until a process has begun to write `skip` checkpoints and is writing the next one, or has ended.
func awaitDraft(ctx context.Context, pid int, saves string, skip int) {
	last := ""
	await(ctx, pid, func() bool {
		entries, _ := os.ReadDir(saves) // the folder does not exist at first
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".partial") && name != last {
				last = name
				skip--
			}
		}
		return skip < 0
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// phase tells when a training was killed, by the files that it left.
func phase(saves string) instant {
	if exists(filepath.Join(saves, fmt.Sprintf("step-%08d", steps))) {
		return behindLast
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
