package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Wanted describes what a profile must contain.
type Wanted struct {
	Sizes []int // of micro-batches
	// Every asks for all sizes. Otherwise larger sizes that take a long time to measure may be left out.
	Every bool
	// Workers is how many devices a given plan uses. If it is 0, no plan is given, and the job's number of workers
	// applies.
	Workers int
}

// kept names the files that keep measurements of one model on one kind of machine.
type kept struct {
	job     *job.Job
	model   *model.Model
	machine string // kind of machine that times of layers are measured for
	wires   string // kind of machine that times of the wire are measured for
	record  string // file with the times of layers
	links   string // file with the times of the wire
	lost    error  // why nothing can be kept; nil if measurements can be kept
}

// Ending is the suffix of files that hold measurements.
const Ending = ".measured.json"

// keptIn returns the files of measurements for this kind of machine. One folder may hold files of several kinds of
// machines.
func keptIn(j *job.Job, m *model.Model, kind string) *kept {
	own, load := Own(), loadOf(j)
	k := &kept{job: j, model: m, machine: builtOn(kind), wires: builtOn(own.Kind(0, 0))}
	dir, err := KeptFolder()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		k.lost = fmt.Errorf("profile: %w", err)
		return k
	}
	way := k.digest(m.ID(), k.machine, load.Concurrency, load.Threads)
	k.record = filepath.Join(dir, names.File(m.Name)+"-"+way+Ending)
	k.links = filepath.Join(dir, "links-"+k.digest(k.wires)+Ending)
	return k
}

// KeptFolder returns the folder that keeps measurements.
func KeptFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for measurements: %w", err)
	}
	return filepath.Join(cache, "millrace", "profiles"), nil
}

// builtOn adds the modification time of the native library's file, if there is one, to a kind of machine. It also adds
// the kernels that the environment chooses for the library.
func builtOn(kind string) string {
	native, _ := torch.Find()
	if library, _ := os.Stat(native); library != nil {
		kind += ", library of " + library.ModTime().UTC().Format(time.RFC3339Nano)
	}
	if core := os.Getenv("OPENBLAS_CORETYPE"); core != "" {
		kind += ", OPENBLAS_CORETYPE " + core
	}
	return kind
}

func (k *kept) digest(of ...any) string {
	key := sha256.Sum256(fmt.Append(nil, append(of, timing.Version)...))
	return hex.EncodeToString(key[:6])
}

// loadOf returns how many workers compute at once while a job is measured, and how many threads each of them has.
func loadOf(j *job.Job) timing.Load {
	return timing.Load{Concurrency: min(j.Machine.Workers, CoresOf(j)), Threads: j.Machine.ThreadsPerWorker,
		Workers: j.Machine.Workers}
}

// read returns the measurements so far of the layers and of the wire. Either is empty if nothing was measured for this
// job on this kind of machine. If a file cannot be read or does not fit the model, its measurements are empty too, and
// read calls `unreadable`.
func (k *kept) read(unreadable func(error)) (*timing.Record, *timing.Links) {
	fresh := timing.NewRecord(k.model, k.machine, loadOf(k.job))
	fresh.Settings = k.job.Model.SettingsText()
	none := &timing.Links{Version: timing.Version, Machine: k.wires}
	if k.lost != nil {
		return fresh, none
	}
	r, err := timing.ReadRecord(k.record)
	if err == nil && r.Same(fresh) {
		if err = r.Check(k.model); err != nil {
			err = fmt.Errorf("%w (in %s)", err, k.record)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		unreadable(err)
	}
	if err != nil || !r.Same(fresh) {
		r = fresh
	}
	l, err := timing.ReadLinks(k.links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		unreadable(err)
	}
	if err != nil || l.Machine != k.wires {
		l = none
	}
	if f, _ := packing.Named(k.job.Plan.Boundary); f.Packs() {
		if _, known := l.Transfer.PackingIn(f); !known {
			l = none // the file is of an older version, which did not measure this
		}
	}
	return r, l
}

// options returns what a Record must hold for a job.
func (k *kept) options(w Wanted) timing.Options {
	return timing.Options{MicroBatches: w.Sizes, Every: w.Every, Quick: !k.job.Machine.Thorough,
		Optimizer: updatesOf(k.job.Train.Optimizer)}
}

// updatesOf describes what an update computes. Values of coefficients are left out, because the time of an update does
// not depend on them.
func updatesOf(o optim.Settings) string {
	return fmt.Sprintf("%s, momentum %v, Nesterov %v, weight decay %v", o.Kind, o.Momentum != 0, o.Nesterov,
		o.WeightDecay != 0)
}

// profile returns the profile from the measurements so far; nil if some are missing.
func (k *kept) profile(w Wanted) (*profile.Profile, error) {
	r, l := k.read(func(error) {}) // the code that measures again reports the error
	return k.made(r, l, w)
}

// made makes a profile from measurements; nil if some are missing.
func (k *kept) made(r *timing.Record, l *timing.Links, w Wanted) (*profile.Profile, error) {
	wire := l.Between(k.job.Machine.Workers)
	o := k.options(w)
	if r.Lacks(o) || wire == nil {
		return nil, nil
	}
	p, err := r.Profile(k.model, r.Chosen(o), o.Optimizer)
	if err != nil {
		return nil, err
	}
	p.Transfer = wire
	return p, p.Validate()
}

// measure makes the missing measurements and keeps them if it can. If `alone` is true, no other process measures on
// this host at the same time. If `alone` is false, other processes of the same run may measure at the same time,
// because their workers also compute at the same time in the run.
func (k *kept) measure(ctx context.Context, w Wanted, alone bool) (*profile.Profile, error) {
	e, err := OpenEngine()
	if err != nil {
		return nil, err
	}
	timer, err := LayerTimer(e, k.job, k.model)
	if err != nil {
		return nil, err
	}
	meter := cli.StartMeter("profile")
	defer func() { meter.Stop() }()
	free, err := k.locked(ctx, measuringLock(), alone, func() {
		meter.Doing("waiting for another millrace that measures on this machine")
	})
	if err != nil {
		return nil, err
	}
	defer free()
	r, l := k.read(func(err error) { slog.Warn(err.Error() + "; what it held is measured again") })
	write := func(f func() error) error {
		free, err := k.locked(ctx, writingLock, true, func() {}) // other hosts may share the folder
		if ctx.Err() != nil {                                    // after a stop, the measurements so far are kept
			free, err = func() {}, nil
		}
		if err != nil {
			return err
		}
		defer free()
		if k.lost == nil {
			k.lose(f())
		}
		return nil
	}
	k.lose(k.lost)
	o := k.options(w)
	o.Progress = meter.Work()
	o.Keep = func() error {
		return write(func() error {
			all := *r
			if others, err := timing.ReadRecord(k.record); err == nil && others.Same(r) && others.Check(k.model) == nil {
				all.Merge(others)
			}
			return all.Write(k.record)
		})
	}
	if l.Between(k.job.Machine.Workers) == nil {
		if err := l.Measure(ctx, timer, k.job.Machine.Workers, meter.Doing); err != nil {
			return nil, err
		}
		if err := write(func() error { return l.Write(k.links) }); err != nil {
			return nil, err
		}
		meter.Doing("measuring")
	}
	if err := r.Extend(ctx, k.model, timer, o); err != nil {
		return nil, err
	}
	p, err := k.made(r, l, w)
	if p == nil && err == nil {
		err = fmt.Errorf("profile: %s: not all has been measured that micro-batches of %v need", k.model.Name, w.Sizes)
	}
	return p, err
}

// lose records why nothing can be kept from now on; a nil error changes nothing. The current run still uses its
// measurements.
func (k *kept) lose(err error) {
	if err != nil {
		k.lost = err
		slog.Warn(err.Error() + "; what is measured now cannot be kept, and the next run measures it again")
	}
}

// leaves describes what is kept of a measurement that was stopped.
func (k *kept) leaves() string {
	if k.lost != nil {
		return "nothing is kept of what was measured"
	}
	r, err := timing.ReadRecord(k.record)
	if err != nil {
		if _, err := timing.ReadLinks(k.links); err != nil {
			return "nothing had been measured yet"
		}
		return "what messages take is kept"
	}
	sizes, _ := r.Sizes()
	if len(sizes) == 0 {
		return "what messages and updates take is kept"
	}
	return fmt.Sprintf("what was measured is kept, of micro-batches of %s; the next run goes on from it",
		strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ", "), "[]"))
}

// locked takes a lock in the folder of measurements. The lock is exclusive if `alone` is true, otherwise shared; `free`
// releases it. If another process has the lock, locked calls `waits` once and waits. If no lock can be made, it
// continues without one.
func (k *kept) locked(ctx context.Context, name string, alone bool, waits func()) (free func(), err error) {
	if k.lost != nil {
		return func() {}, nil
	}
	f, err := lockFile(filepath.Dir(k.record), name)
	if err != nil {
		k.lose(err)
		return func() {}, nil
	}
	return locked(ctx, f, alone, waits)
}

// measuringLock and writingLock name the locks in the folder of measurements. The measuring lock is for processes that
// measure on this host, since they would slow each other down. The writing lock is for processes of all hosts that
// write a file there.
func measuringLock() string { return "measuring-" + names.File(cli.HostName()) }

const writingLock = "writing"

func lockFile(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return f, nil
}

// locked takes a lock on a file, which `free` releases. The lock is exclusive if `alone` is true, otherwise shared.
func locked(ctx context.Context, f *os.File, alone bool, waits func()) (free func(), err error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return func() { f.Close() }, nil
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(lockedAgain):
		}
	}
}

// WithoutMeasurers calls `remove` while no process measures on this host and none writes a file on any host. It waits
// for processes that measure, and calls `waits` before it waits.
func WithoutMeasurers(ctx context.Context, waits func(), remove func() error) error {
	dir, err := KeptFolder()
	if err != nil {
		return err
	}
	for _, name := range []string{measuringLock(), writingLock} {
		f, err := lockFile(dir, name)
		if err != nil {
			return err
		}
		free, err := locked(ctx, f, true, waits)
		if err != nil {
			return err
		}
		defer free()
	}
	return remove()
}

// lockedAgain is the time between two attempts to take a lock.
const lockedAgain = 50 * time.Millisecond

// Measured is one file of measurements.
type Measured struct {
	Path   string
	Bytes  int64
	Record *timing.Record // nil for a file of wire measurements
	Links  *timing.Links  // nil for a file of a model's measurements
	Err    error          // why the file cannot be read
	Old    bool           // the file is of an earlier version of millrace, which this version does not read
}

// AllMeasured lists the files of measurements.
func AllMeasured() ([]Measured, error) {
	dir, err := KeptFolder()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	var all []Measured
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(f.Name()) != ".json" {
			continue
		}
		m := Measured{Path: filepath.Join(dir, f.Name()), Bytes: info.Size()}
		switch {
		case !strings.HasSuffix(f.Name(), Ending):
			m.Old = true
		case strings.HasPrefix(f.Name(), "links-"):
			if m.Links, m.Err = timing.ReadLinks(m.Path); m.Err == nil {
				break
			}
			fallthrough // the name of a model may also begin with "links-"
		default:
			if r, err := timing.ReadRecord(m.Path); err == nil {
				m.Record, m.Links, m.Err = r, nil, nil
			} else if m.Err == nil {
				m.Err = err
			}
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b Measured) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}
