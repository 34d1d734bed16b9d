package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
)

// Stopped is the cause of a context that a signal ended.
type Stopped struct{ signal syscall.Signal }

// Signal is the signal.
func (s *Stopped) Signal() syscall.Signal { return s.signal }

func (s *Stopped) Error() string { return "stopped by " + s.name() + " before it was done" }

// code is what the process ends with.
func (s *Stopped) code() int { return 128 + int(s.signal) }

func (s *Stopped) name() string {
	switch s.signal {
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGINT:
		return "SIGINT"
	}
	return "SIGTERM"
}

// SameSignal is how close two signals must be to be one: make, timeout and terminals signal
// a process and then its group, so that it hears of the same wish twice.
const SameSignal = time.Second

// StopGrace is how long a verb that was stopped may take to return. What it reads or computes need not ask for
// signals all the time: behind this the process ends, and files are whole or not there at any moment.
const StopGrace = 700 * time.Millisecond

// stopper hears the signals of one verb, and decides what the process ends with.
type stopper struct {
	cancel context.CancelCauseFunc
	exit   func(code int) // os.Exit

	mu     sync.Mutex
	by     *Stopped      // the first signal; nil before it
	saving bool          // the verb ends by itself, behind its step for one, however long that takes
	told   string        // what it says then
	kept   func() string // what a verb keeps that ends before it is done; nil: its outputs
	before []output      // the verb's outputs, as they were
	said   sync.Once
}

type stopperKey struct{}

// hearSignals makes a context that the first SIGHUP, SIGINT or SIGTERM ends, with a *stopped as its cause.
// A SIGHUP that whoever started the process had it ignore, as nohup does, stays ignored.
func hearSignals() (context.Context, *stopper) {
	s := &stopper{exit: exitAtOnce}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	heard := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		heard = append(heard, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, heard...)
	crash.Go(func() { s.listen(signals) })
	return context.WithValue(ctx, stopperKey{}, s), s
}

// exitAtOnce ends the process without waiting for anybody, and leaves no file half-written.
func exitAtOnce(code int) {
	document.Abandon()
	os.Exit(code)
}

func (s *stopper) listen(signals <-chan os.Signal) {
	first := time.Time{}
	for sig := range signals {
		if s.heard() == nil {
			first = time.Now()
			s.first(&Stopped{sig.(syscall.Signal)})
		} else if time.Since(first) >= SameSignal {
			s.exit(s.atOnce(&Stopped{sig.(syscall.Signal)}))
		}
	}
}

// first takes the first signal: a run is left to finish its step, anything else has a moment to return.
func (s *stopper) first(by *Stopped) {
	s.mu.Lock()
	s.by = by
	saving, told := s.saving, s.told
	s.mu.Unlock()
	noMeter()
	if Draws(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\x1b[K") // a live line of the verb's own, and the ^C of the terminal
	}
	if saving {
		slog.Warn(fmt.Sprintf("%s: %s; once more ends at once", by.name(), told))
	} else {
		time.AfterFunc(StopGrace, crash.Caught(func() { s.exit(s.say(by)) }))
	}
	s.cancel(by)
}

// say says once that the verb was stopped, and what the process ends with for it.
func (s *stopper) say(by *Stopped) (code int) {
	s.said.Do(func() {
		noMeter()
		s.mu.Lock()
		kept := s.kept
		s.mu.Unlock()
		if kept == nil {
			kept = s.wrote
		}
		if more := kept(); more != "" {
			slog.Error(by.Error() + "; " + more)
		}
	})
	return by.code()
}

// atOnce says once that a second signal ends the process, whatever it was doing, and is what that ends with.
func (s *stopper) atOnce(by *Stopped) (code int) {
	s.said.Do(func() {
		noMeter()
		if Draws(os.Stderr) {
			fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
		slog.Error("ended at once by another " + by.name() + "; no file is half-written, and what was being saved is lost")
	})
	return s.heard().code()
}

// wrote says which of the verb's outputs it has written. Files are written whole, and replaced by another one.
func (s *stopper) wrote() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done []string
	for _, o := range s.before {
		now, err := os.Stat(o.path)
		if err == nil && (o.was == nil || !os.SameFile(o.was, now)) {
			done = append(done, o.path)
		}
	}
	if done == nil {
		return "nothing was written"
	}
	return strings.Join(done, ", ") + " had been written by then"
}

// Keeps says what a verb that is stopped from here on leaves, which kept says when it comes to that; empty for a verb
// whose user hears of it from another process. Behind a signal it changes nothing: a verb that returns for it leaves
// what it did when it was stopped. Where nothing is said, or nil, it is which of its outputs have been written.
func Keeps(ctx context.Context, kept func() string) {
	if s, ok := ctx.Value(stopperKey{}).(*stopper); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.by == nil {
			s.kept = kept
		}
	}
}

// heard is the first signal; nil where there was none.
func (s *stopper) heard() *Stopped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by
}

// FinishesItsStep says that from here on the verb answers a signal by finishing its step and saving, however
// long that takes. A verb that was stopped before it came to its first step gets the cause.
func FinishesItsStep(c *cobra.Command) error {
	if err := answers(c, "finishing the step and saving"); err != nil {
		return err
	}
	// Whoever read the output may have been stopped as well, tee for one: the run is saved all the same.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c.SetOut(patient{to: c.OutOrStdout(), screen: IsTerminal(os.Stdout)})
	return nil
}

// ShowsWhatItHas says that a signal now has the verb show and keep what it has found, as told says. It returns the
// cause then. A verb that was stopped before gets it at once.
func ShowsWhatItHas(c *cobra.Command, told string) error { return answers(c, told) }

// LeavesToOthers says that a signal now has the verb tell other processes to stop. It waits for them however long
// that takes. A verb that was stopped before gets the cause.
func LeavesToOthers(c *cobra.Command) error { return answers(c, "telling all processes to stop") }

// answers has a signal let the verb end by itself, and tells the user what it does meanwhile.
func answers(c *cobra.Command, told string) error {
	s, ok := c.Context().Value(stopperKey{}).(*stopper)
	if !ok {
		return context.Cause(c.Context())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by != nil {
		return s.by
	}
	s.saving, s.told = true, told
	return nil
}

// code is what the process ends with after a verb returned err, and says why. A signal decides it, unless all
// was done in spite of it, or failed while it was being saved.
func (s *stopper) code(err error, args []string) int {
	s.mu.Lock()
	by, saving := s.by, s.saving
	s.mu.Unlock()
	var cause *Stopped
	switch {
	case AsPanic(err) != nil:
		slog.Error(explainPanic(args, AsPanic(err), err))
		return ExitFailed
	case by == nil && err == nil, saving && err == nil:
		return 0
	case saving && errors.As(err, &cause):
		return cause.code() // what was saved, and where, was said
	case by != nil && !saving:
		return s.say(by)
	}
	slog.Error(inWords(err))
	return CodeOf(err)
}

// patient is an output that a run does not depend on: that nobody reads it any more is no error.
type patient struct {
	to     io.Writer
	screen bool // of a terminal, which may have been closed
}

func (p patient) Write(text []byte) (int, error) {
	n, err := p.to.Write(text)
	if errors.Is(err, syscall.EPIPE) || p.screen && errors.Is(err, syscall.EIO) {
		return len(text), nil
	}
	return n, err
}

// Fd is the descriptor of the file it writes to, by which callers know a terminal; an invalid one where it is not a
// file.
func (p patient) Fd() uintptr {
	if f, ok := p.to.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}
