package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/trace"
)

// LogVar is the environment variable for the form of the log; --log overrides it.
const LogVar = "MILLRACE_LOG"

// These are the forms of a log.
const (
	human  = "human"
	asJSON = "json"
)

// step is the number, from 1, of the last step that this process finished; 0 before the first. Log records contain it.
var step atomic.Int64

// AtStep sets the step, counted from 0, that this process finished last. Log records then contain its trace.StepNumber.
func AtStep(index int) { step.Store(int64(trace.StepNumber(index))) }

// records is true if the log is for machines.
var records atomic.Bool

// Records reports whether the log is for machines. Nothing is drawn on the terminal then.
func Records() bool { return records.Load() }

// Say logs a line. A log for machines also has the keys and values in `about`.
func Say(line string, about ...any) {
	if !Records() {
		about = nil
	}
	slog.Info(line, about...)
}

// withoutRank marks a verb whose own process does not take part in a run.
const withoutRank = "without rank"

// WithoutRank marks a verb that starts the processes of a run without being one of them.
func WithoutRank(c *cobra.Command) { annotate(c, withoutRank, "") }

// logTo sets the destination w and the form of everything that this process logs. Records for machines hold the host
// and the step of the process, and its rank if `ranked` is true. Lines for people begin with the rank if several
// processes write and the launcher does not add it.
func logTo(w io.Writer, form, program string, ranked bool, environment []string) error {
	world, err := launch.FromEnv(environment)
	if err != nil {
		world = launch.Alone() // code that needs the World reports the error
	}
	switch form {
	case human, "":
		h := &lineHandler{to: w, program: program}
		if world.Size > 1 && world.Launcher != launch.Millrace {
			h.prefix = fmt.Sprintf("[%d] ", world.Rank)
		}
		slog.SetDefault(slog.New(h))
	case asJSON:
		host := cmp.Or(world.Host, HostName())
		h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
		about := []any{"host", host}
		if ranked {
			about = append(about, "rank", world.Rank)
		}
		slog.SetDefault(slog.New(stepHandler{h}).With(about...))
	default:
		return BadInput(fmt.Errorf("a log is %s or %s, not %q (--log, or the variable %s)", human, asJSON, form, LogVar))
	}
	records.Store(form == asJSON)
	return nil
}

// HostName returns the name of this host.
func HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// startLog sets up a program's log as the environment asks.
func startLog(program string) {
	step.Store(0)
	if err := logTo(os.Stderr, os.Getenv(LogVar), program, true, os.Environ()); err != nil {
		_ = logTo(os.Stderr, human, program, true, os.Environ()) // each verb refuses a wrong form later
	}
}

// addLog adds the flag --log to a program.
func addLog(root *cobra.Command) {
	root.PersistentFlags().String("log", "", "form of the log on stderr: human or json (default: $"+LogVar+", or human)")
}

// setLog sets up the log of a verb, and of all processes that it starts, as its flags and the environment ask.
func setLog(c *cobra.Command) error {
	form := os.Getenv(LogVar)
	if f := c.Flags().Lookup("log"); f != nil && f.Changed {
		form = f.Value.String()
		if err := os.Setenv(LogVar, form); err != nil {
			return err
		}
	}
	_, none := c.Annotations[withoutRank]
	if err := logTo(os.Stderr, form, c.Root().Name(), !none, os.Environ()); err != nil {
		return err
	}
	if Records() {
		c.Root().SetOut(struct{ io.Writer }{c.Root().OutOrStdout()}) // hides that the output is a terminal
	}
	if h, is := slog.Default().Handler().(*lineHandler); !is || h.prefix != "" {
		c.Root().SetErr(&liner{to: os.Stderr})
	} else if IsTerminal(os.Stderr) {
		c.Root().SetErr(above{os.Stderr})
	}
	return nil
}

// stepHandler adds the step of the process to records that have none.
type stepHandler struct{ slog.Handler }

func (h stepHandler) Handle(ctx context.Context, r slog.Record) error {
	has := false
	r.Attrs(func(a slog.Attr) bool { has = a.Key == "step"; return !has })
	if n := step.Load(); n > 0 && !has {
		r.AddAttrs(slog.Int64("step", n))
	}
	return h.Handler.Handle(ctx, r)
}

func (h stepHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return stepHandler{h.Handler.WithAttrs(attrs)}
}

func (h stepHandler) WithGroup(name string) slog.Handler {
	return stepHandler{h.Handler.WithGroup(name)}
}

// lineHandler writes records for people: the line, then its attributes. Warnings and errors begin with the program's
// name.
type lineHandler struct {
	mu      sync.Mutex
	to      io.Writer
	program string
	prefix  string // begins every line
}

func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	if r.Level >= slog.LevelWarn {
		text = h.program + ": " + text
	}
	r.Attrs(func(a slog.Attr) bool { text += about(a); return true })
	text = FitLines(h.to, h.prefix, names.Shown(text)) + "\n"
	return makeRoom(func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		_, err := io.WriteString(h.to, text)
		return err
	})
}

// FitLines begins each line of a text with the prefix. On a terminal, unless the log is for machines, it also breaks
// lines between words so that they fit.
func FitLines(w io.Writer, prefix, text string) string {
	if f, is := w.(interface{ Fd() uintptr }); is && !Records() && term.IsTerminal(int(f.Fd())) {
		return terminal.Of(w).Fit(prefix, text)
	}
	return prefix + strings.ReplaceAll(text, "\n", "\n"+prefix)
}

// about formats an attribute as " key=value".
func about(a slog.Attr) string {
	value := a.Value.String()
	if value == "" || strings.ContainsAny(value, " \t\n\"=") {
		value = strconv.Quote(value)
	}
	return " " + a.Key + "=" + value
}

// WithAttrs returns a handler that adds attributes to the end of every line.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return behind{h, attrs} }

// WithGroup ignores the group.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }

// behind is a lineHandler that adds attributes to the end of every line.
type behind struct {
	*lineHandler
	attrs []slog.Attr
}

func (b behind) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	r.AddAttrs(b.attrs...)
	return b.lineHandler.Handle(ctx, r)
}

func (b behind) WithAttrs(attrs []slog.Attr) slog.Handler {
	return behind{b.lineHandler, append(b.attrs[:len(b.attrs):len(b.attrs)], attrs...)}
}

// above writes lines to a terminal above the live line, broken between words.
type above struct{ *os.File }

func (a above) Write(text []byte) (int, error) {
	err := makeRoom(func() error {
		_, err := io.WriteString(a.File, FitLines(a.File, "", string(text)))
		return err
	})
	return len(text), err
}

// liner logs each whole line that is written to it. If the log is for machines, it passes on unchanged the lines that
// are already log records of another process.
type liner struct {
	to   io.Writer
	mu   sync.Mutex
	rest []byte
}

func (l *liner) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text...)
	for {
		line, more, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		l.rest = more
		if !Records() || !bytes.HasPrefix(line, []byte(`{"`)) {
			slog.Info(string(line))
		} else if _, err := l.to.Write(append(bytes.Clone(line), '\n')); err != nil {
			return len(text), err
		}
	}
}
