package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
)

// runFolder is the folder of the current run; nil before it is known.
var runFolder atomic.Pointer[string]

// ReportsTo sets the folder of the current run. A panic leaves its report there.
func ReportsTo(folder string) { runFolder.Store(&folder) }

// dieOf returns a function that reports a panic and ends the process. It is for panics in goroutines that no caller
// waits for. `args` begin with the program's name.
func dieOf(args []string) func(*crash.Panic) {
	return func(p *crash.Panic) {
		slog.Error(explainPanic(args, p, p))
		exitAtOnce(ExitFailed)
	}
}

// explainPanic writes a report of a panic to a file and returns one line that names the file. If no file can be
// written, it returns the stack too. `err` is the error that carried the panic.
func explainPanic(args []string, p *crash.Panic, err error) string {
	what := names.Shown(fmt.Sprintf("internal error in %s: %s", verbOf(args),
		strings.Join(strings.Fields(err.Error()), " ")))
	path, failed := leaveReport(args, p, err)
	if failed != nil {
		return fmt.Sprintf("%s; it could not be written down: %v\n%s", what, failed, p.Stack)
	}
	return fmt.Sprintf("%s; please send %s", what, path)
}

// leaveReport writes the report of a panic to the run's folder, or else to the folder for temporary files.
func leaveReport(args []string, p *crash.Panic, err error) (path string, failed error) {
	every := make([]byte, 1<<20)
	every = every[:runtime.Stack(every, true)]
	text := fmt.Sprintf("%s %s, %s %s/%s, %d processors\ncommand: %s\n%v\n\n%s\nall goroutines:\n%s",
		args[0], Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		strings.Join(WithoutSecrets(args[1:]), " "), err, p.Stack, every)
	name := fmt.Sprintf("millrace-crash-%s-%d.txt", time.Now().UTC().Format("20060102T150405"), os.Getpid())
	folders := []string{os.TempDir()}
	if run := runFolder.Load(); run != nil {
		folders = append([]string{*run}, folders...)
	}
	for _, dir := range folders {
		path = filepath.Join(dir, name)
		if failed = document.WriteText(path, text); failed == nil {
			return path, nil
		}
	}
	return "", failed
}

// verbOf returns the program and the verb of a command line.
func verbOf(args []string) string {
	if len(args) == 1 || strings.HasPrefix(args[1], "-") {
		return args[0]
	}
	return args[0] + " " + args[1]
}

// WithoutSecrets returns a command line without the values of flags whose names have the word token, password or
// secret. Names of files that hold secrets stay.
func WithoutSecrets(args []string) []string {
	var out []string
	hide := false
	for _, arg := range args {
		name, _, given := strings.Cut(arg, "=")
		words := strings.Split(strings.TrimLeft(name, "-"), "-")
		secret := strings.HasPrefix(name, "-") && words[len(words)-1] != "file" &&
			slices.ContainsFunc(words, func(w string) bool { return w == "token" || w == "password" || w == "secret" })
		switch {
		case hide:
			arg = "***"
		case secret && given:
			arg = name + "=***"
		}
		hide = secret && !given
		out = append(out, arg)
	}
	return out
}

// AsPanic returns the panic that an error wraps; nil if it wraps none.
func AsPanic(err error) *crash.Panic {
	var p *crash.Panic
	if errors.As(err, &p) {
		return p
	}
	return nil
}
