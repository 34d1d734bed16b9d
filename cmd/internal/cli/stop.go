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

// Signal returns the signal that stopped the verb.
func (s *Stopped) Signal() syscall.Signal { return s.signal }

func (s *Stopped) Error() string { return "stopped by " + s.name() + " before it was done" }

// code returns the exit code of the process.
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

// SameSignal is the time within which two signals count as one. A terminal, and programs such as make and timeout,
// signal a process and then its group. So the process receives two signals for one request.
const SameSignal = time.Second

// StopGrace is how long a stopped verb may take to return. A verb's reading and computing need not check for signals
// all the time, because the process is ended after this time. Verbs that end by themselves after a signal have no
// limit. Files are always either whole or absent.
const StopGrace = 700 * time.Millisecond

// stopper handles the signals of one verb and decides the exit code.
type stopper struct {
	cancel context.CancelCauseFunc
	exit   func(code int) // ends the process: exitAtOnce

	mu     sync.Mutex
	by     *Stopped      // the first signal; nil before it
	saving bool          // the verb ends by itself, for example after its step, however long that takes
	told   string        // text that is shown while the verb ends
	kept   func() string // returns what a verb that was stopped early leaves behind; nil: its outputs
	before []output      // the verb's outputs, as they were before it ran
	said   sync.Once
}

type stopperKey struct{}

// hearSignals makes a context that the first SIGHUP, SIGINT or SIGTERM cancels, with a *Stopped as its cause. A
// SIGHUP that is ignored at the start, as under nohup, stays ignored.
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

// exitAtOnce ends the process without waiting for goroutines. It leaves no half-written file.
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

// first handles the first signal. A verb that finishes by itself, such as a run after its step, may do so. Any other
// verb has StopGrace to return.
func (s *stopper) first(by *Stopped) {
	s.mu.Lock()
	s.by = by
	saving, told := s.saving, s.told
	s.mu.Unlock()
	noMeter()
	if Draws(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\x1b[K") // clears the verb's own live line and the terminal's ^C
	}
	if saving {
		slog.Warn(fmt.Sprintf("%s: %s; once more ends at once", by.name(), told))
	} else {
		time.AfterFunc(StopGrace, crash.Caught(func() { s.exit(s.say(by)) }))
	}
	s.cancel(by)
}

// say logs once that the verb was stopped and what it leaves, and returns the exit code. If there is no text about what
// it leaves, say logs nothing.
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

// atOnce logs once that a second signal ends the process, and returns the first signal's exit code.
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

// wrote lists the outputs that the verb has written. A written output is always a new file, because files are replaced
// as a whole.
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

// Keeps sets the text about what a verb leaves if it is stopped later. `kept` returns the text at the time of the stop.
// An empty text means that another process informs the user. After a signal Keeps changes nothing, because the text
// must describe the moment of the stop. Without a call, or with nil, the text lists the outputs that have been written.
func Keeps(ctx context.Context, kept func() string) {
	if s, ok := ctx.Value(stopperKey{}).(*stopper); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.by == nil {
			s.kept = kept
		}
	}
}

// heard returns the first signal; nil if there was none.
func (s *stopper) heard() *Stopped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by
}

// FinishesItsStep lets the verb, after a signal, finish its step and save, however long that takes. It returns the
// cause if the verb has already been stopped.
func FinishesItsStep(c *cobra.Command) error {
	if err := answers(c, "finishing the step and saving"); err != nil {
		return err
	}
	// The process that reads the output, such as tee, may be stopped as well. The run is saved all the same.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c.SetOut(patient{to: c.OutOrStdout(), screen: IsTerminal(os.Stdout)})
	return nil
}

// ShowsWhatItHas lets the verb, after a signal, show and keep what it has found. `told` describes that to the user.
// ShowsWhatItHas returns the cause if the verb has already been stopped.
func ShowsWhatItHas(c *cobra.Command, told string) error { return answers(c, told) }

// LeavesToOthers lets the verb, after a signal, tell other processes to stop, and wait for them however long that
// takes. It returns the cause if the verb has already been stopped.
func LeavesToOthers(c *cobra.Command) error { return answers(c, "telling all processes to stop") }

// answers lets the verb end by itself after a signal. Meanwhile the user is shown the text `told`.
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

// code returns the exit code of a verb that ended with `err`. It logs why the verb ended, unless that has already been
// logged. After a panic the code is ExitFailed. After a signal it is the signal's code, with two exceptions for a verb
// that ends by itself. The code is 0 if the verb completed anyway. It is that of the verb's own error if the verb
// failed for another reason than the signal.
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
		return cause.code() // the verb has already said what was saved, and where
	case by != nil && !saving:
		return s.say(by)
	}
	slog.Error(inWords(err))
	return CodeOf(err)
}

// patient is a writer that ignores the error of a closed reader, so that a run continues without the reader.
type patient struct {
	to     io.Writer
	screen bool // the output is a terminal, which may have been closed
}

func (p patient) Write(text []byte) (int, error) {
	n, err := p.to.Write(text)
	if errors.Is(err, syscall.EPIPE) || p.screen && errors.Is(err, syscall.EIO) {
		return len(text), nil
	}
	return n, err
}

// Fd returns the descriptor of the file that the writer writes to, from which callers recognise a terminal. It is
// invalid if the writer does not write to a file.
func (p patient) Fd() uintptr {
	if f, ok := p.to.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}
