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
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
)

// Wanted is what a profile is to hold.
type Wanted struct {
	Sizes []int // of micro-batches
	// Every asks for all of them; else the larger ones may be left out where they take long to measure.
	Every bool
}

// kept is where measurements of one model on one kind of machine last.
type kept struct {
	job     *job.Job
	model   *model.Model
	machine string // of the layers' times
	wires   string // of the wire's
	record  string // files
	links   string
}

// Ending is of the names of files that hold measurements.
const Ending = ".measured.json"

// keptIn is where measurements last, for a kind of machine that a process says it has. Machines of several kinds may
// have one folder in common.
func keptIn(j *job.Job, m *model.Model, kind string) (*kept, error) {
	dir, err := KeptFolder()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cache folder for profiles: %w", err)
	}
	own, load := Own(), loadOf(j)
	k := &kept{job: j, model: m, machine: builtOn(kind), wires: builtOn(own.Kind(0, 0))}
	way := k.digest(m.ID(), k.machine, load.Concurrency, load.Threads)
	k.record = filepath.Join(dir, names.File(m.Name)+"-"+way+Ending)
	k.links = filepath.Join(dir, "links-"+k.digest(k.wires)+Ending)
	return k, nil
}

// KeptFolder is where measurements last.
func KeptFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder for profiles: %w; name a file with --profile", err)
	}
	return filepath.Join(cache, "millrace", "profiles"), nil
}

// builtOn is a kind of machine with what the native library and its kernels are on it.
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

// loadOf is how many workers compute at once while a job is measured.
func loadOf(j *job.Job) timing.Load {
	return timing.Load{Concurrency: min(j.Workers, CoresOf(j)), Threads: j.ThreadsPerWorker, Workers: j.Workers}
}

// read is what has been measured so far; empty where nothing was, or it cannot be read, which is said.
func (k *kept) read() (*timing.Record, *timing.Links) {
	fresh := timing.NewRecord(k.model, k.machine, loadOf(k.job))
	r, err := timing.ReadRecord(k.record)
	if unreadable(err); err != nil || !r.Same(fresh) {
		r = fresh
	}
	l, err := timing.ReadLinks(k.links)
	if unreadable(err); err != nil || l.Machine != k.wires {
		l = &timing.Links{Version: timing.Version, Machine: k.wires}
	}
	return r, l
}

func unreadable(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn(err.Error() + "; what it held is measured again")
	}
}

// options is what a Record is to hold of a job.
func (k *kept) options(w Wanted) timing.Options {
	return timing.Options{MicroBatches: w.Sizes, Every: w.Every, Quick: !k.job.Thorough,
		Optimizer: fmt.Sprintf("%+v", k.job.Optimizer)}
}

// profile is what the measurements say; nil: something is missing.
func (k *kept) profile(w Wanted) (*profile.Profile, error) {
	r, l := k.read()
	wire := l.Between(k.job.Workers)
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

// measure adds what is missing. alone has it wait for others of this host who measure; else those are of the same run,
// whose workers compute at once.
func (k *kept) measure(ctx context.Context, w Wanted, alone bool) (err error) {
	e, err := OpenEngine()
	if err != nil {
		return err
	}
	timer, err := LayerTimer(e, k.job, k.model)
	if err != nil {
		return err
	}
	meter := cli.StartMeter("profile")
	defer func() { meter.Stop() }()
	dir := filepath.Dir(k.record)
	host := names.File(cli.HostName())
	free, err := locked(ctx, filepath.Join(dir, "measuring-"+host+".lock"), alone, func() {
		meter.Doing("waiting for another millrace that measures on this machine")
	})
	if err != nil {
		return err
	}
	defer free()
	r, l := k.read()
	write := func(f func() error) error {
		free, err := locked(ctx, filepath.Join(dir, "writing-"+host+".lock"), true, func() {})
		if ctx.Err() != nil { // it was stopped, and keeps what it has
			free, err = func() {}, nil
		}
		if err != nil {
			return err
		}
		defer free()
		return f()
	}
	o := k.options(w)
	o.Progress = meter.Work()
	o.Keep = func() error {
		return write(func() error {
			all := *r
			if others, err := timing.ReadRecord(k.record); err == nil && others.Same(r) {
				all.Merge(others)
			}
			return all.Write(k.record)
		})
	}
	if l.Between(k.job.Workers) == nil {
		meter.Doing("messages between workers")
		if err := l.Measure(ctx, timer, k.job.Workers); err != nil {
			return err
		}
		if err := write(func() error { return l.Write(k.links) }); err != nil {
			return err
		}
	}
	return r.Extend(ctx, k.model, timer, o)
}

// leaves says what is kept of a measurement that is stopped.
func (k *kept) leaves() string {
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

// locked has a file's lock, alone or with others who share it, and gives it back by free. It waits for whoever has it,
// calling waits once. A file system without locks has none to wait for.
func locked(ctx context.Context, path string, alone bool, waits func()) (free func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
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

// lockedAgain is how often a lock is asked for.
const lockedAgain = 50 * time.Millisecond

// Measured is one file of measurements.
type Measured struct {
	Path   string
	Bytes  int64
	Record *timing.Record // nil: of the wire between workers
	Links  *timing.Links  // nil: of a model
	Err    error          // why it cannot be read
	Old    bool           // an earlier millrace's, which this one does not read
}

// AllMeasured lists what has been measured.
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
			fallthrough // a model may be called so
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
