package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// outputs are commands that write one file. The last word of each is the file's path.
var outputs = []string{
	"plan --model gpt --cluster @cluster.yaml --batch 8 -o full/plan.json",
	"simulate --model gpt --cluster @cluster.yaml --batch 8 -o full/predicted.json.gz",
	"profile --model gpt --analytic --cluster @cluster.yaml --batch 8 -o full/profile.json",
	"schedule --stages 8 --micro-batches 64 --html full/step.html",
	"schedule --stages 8 --micro-batches 64 --svg full/step.svg",
	"import --from pipedream --batch 8 @graph.txt -o full/profile.json",
}

// savesAll has the flags of the training that fills its disk: it keeps every checkpoint.
const savesAll = " --steps 120 --save-every 8 --keep 0"

// attackDisks runs trainings, and then verbs that write a file, on a full disk.
func attackDisks(ctx context.Context, a *attack, want int) (*tally, error) {
	t := &tally{want: want + len(outputs)}
	t.say("%s", map[bool]string{
		true:  "on file systems of their own",
		false: "NOT ON A FULL DISK: nothing can be mounted here, so that files were limited in length instead",
	}[a.mounts()])
	err := a.each(ctx, t.want, func(i int) error {
		// The goroutine does not unlock its thread. So the thread, which has its own mounts, ends with the goroutine.
		failed := make(chan error)
		crash.Go(func() {
			runtime.LockOSThread()
			f, err := a.fillDisk(ctx, i, want)
			if err == nil {
				t.add(f)
			}
			failed <- err
		})
		if err := <-failed; err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
		return nil
	})
	return t, err
}

// mounts reports whether a file system can be mounted.
func (a *attack) mounts() bool {
	done := make(chan bool)
	crash.Go(func() {
		runtime.LockOSThread()
		dir := filepath.Join(a.scratch, "mount")
		done <- os.MkdirAll(dir, 0o755) == nil && mount(dir, 1<<20) == nil
	})
	return <-done
}

// mount mounts a file system of this size. Only this thread and the processes that it starts see the file system, which
// disappears when the last of them has ended.
func mount(dir string, size int64) error {
	if err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Mount("millrace-attack", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}

// fillDisk makes the attack with this number. If the number is below `trainings`, the attack is a training, otherwise a
// command of the list `outputs`. fillDisk needs a thread of its own.
func (a *attack) fillDisk(ctx context.Context, number, trainings int) (f *finding, err error) {
	r := seeded(a.seed+3, uint64(number))
	dir, err := os.MkdirTemp(a.scratch, "disk-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(full, 0o755); err != nil {
		return nil, err
	}
	size := int64(4 << 10)
	if number < trainings {
		size = 200<<10 + r.Int64N(1000<<10)
	}
	c := command{dir: dir, home: dir, limits: usual}
	if mounted := mount(full, size); mounted == nil {
		defer func() { err = errors.Join(err, syscall.Unmount(full, syscall.MNT_DETACH)) }()
		if number >= trainings {
			if err := fill(full); err != nil {
				return nil, err
			}
		}
	} else if c.limits.file = 1 << 10; number < trainings {
		c.limits.file = 1<<10 + r.Int64N(60<<10)
	}
	var wrong []string
	if number < trainings {
		c, wrong, err = a.fullTraining(ctx, c)
	} else {
		c, wrong, err = a.fullOutput(ctx, c, outputs[number-trainings])
	}
	if err != nil {
		return nil, err
	}
	if f = a.found(fmt.Sprintf("disk %d of %d bytes", number, size), c, nil, wrong); f != nil {
		err = a.keepFolder(f, dir)
		f.repeat = fmt.Sprintf("make attack ATTACK='--only disks --seed %d'; there, on a disk of %d bytes, %s",
			a.seed, size, f.repeat)
	}
	return f, err
}

func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "rest"))
	if err != nil {
		return err
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1<<10))
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// fullTraining trains until the disk is full. It checks that all earlier checkpoints are whole. It also checks that the
// training, resumed from the latest checkpoint, ends with the weights of an undisturbed training.
func (a *attack) fullTraining(ctx context.Context, c command) (command, []string, error) {
	sync := &trainings[0]
	want, err := a.reference(ctx, sync)
	if err != nil {
		return c, nil, err
	}
	args := strings.Replace(sync.args, saved, savesAll, 1)
	c.args = a.words(append([]string{"train", "--out", "full/out"}, strings.Fields(args)...))
	e, err := a.run(ctx, c)
	if err != nil {
		return c, nil, err
	}
	wrong := e.fullFaults(c.limits)
	dir := filepath.Join(c.dir, "full", "out", "checkpoints")
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if err := opens(filepath.Join(dir, entry.Name())); err != nil {
			wrong = append(wrong, fmt.Sprintf("left a checkpoint that is not whole: %v", err))
		}
	}
	latest, err := checkpoint.Latest(dir)
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return c, nil, err
	}
	if err != nil || len(wrong) > 0 {
		return c, wrong, nil
	}
	next := command{dir: c.dir, home: c.home, args: a.trainArgs(sync.args, latest)}
	if e, err = a.run(ctx, next); err != nil {
		return next, nil, err
	}
	if e.code != 0 {
		return next, []string{"cannot go on from the checkpoint before the disk was full: " + e.last()}, nil
	}
	if err := sameTensors(want.final, finalOf(c.dir, steps)); err != nil {
		return next, []string{"goes on to other weights than an undisturbed run: " + err.Error()}, nil
	}
	return c, nil, nil
}

// fullOutput runs a command that writes a file to a full disk.
func (a *attack) fullOutput(ctx context.Context, c command, line string) (command, []string, error) {
	c.args = a.words(strings.Fields(line))
	before, err := treeOf(filepath.Join(c.dir, "full"))
	if err != nil {
		return c, nil, err
	}
	e, err := a.run(ctx, c)
	if err != nil {
		return c, nil, err
	}
	wrong := e.fullFaults(c.limits)
	after, err := treeOf(filepath.Join(c.dir, "full"))
	if err != nil {
		return c, nil, err
	}
	if e.code != 0 {
		wrong = append(wrong, after.changes(before, func(string) bool { return false })...)
	}
	return c, wrong, nil
}

// fullFaults returns what a command did wrong on a full disk. If only the length of files is limited, the command may
// succeed, because it may not reach the limit.
func (e *ended) fullFaults(l limits) []string {
	wrong := e.faults(l)
	said := strings.ToLower(string(e.err))
	switch {
	case e.code == 0 && l.file > 0:
	case e.code != 1:
		wrong = append(wrong, fmt.Sprintf("ended with %d on a full disk, which must be 1: %s", e.code, e.last()))
	case !strings.Contains(said, "no space left") && !strings.Contains(said, "file too large"):
		wrong = append(wrong, fmt.Sprintf("does not say that the disk is full: %s", e.last()))
	}
	return wrong
}
