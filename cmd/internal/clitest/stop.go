package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ends holds every signal that ends a verb, with its exit code.
var Ends = map[syscall.Signal]int{syscall.SIGHUP: 129, syscall.SIGINT: 130, syscall.SIGTERM: 143}

// atWork is the processor time after which a process is taken to have started up.
const atWork = 150 * time.Millisecond

// promptly is the time within which a verb must end. It is long because other tests may run at the same time.
const promptly = 20 * time.Second

// Obeyed skips a test if the signal is ignored here, as under nohup. millrace ignores such a signal too.
func Obeyed(t *testing.T, sig syscall.Signal) {
	if signal.Ignored(sig) {
		t.Skip(sig, " is ignored here")
	}
}

// StopAtWork is StopAnswering for a command that prints nothing on stdout.
func (p *Program) StopAtWork(t *testing.T, args, word string, sig syscall.Signal, code int) (said string) {
	t.Helper()
	printed, said := p.StopAnswering(t, args, word, sig, code)
	if printed != "" {
		t.Errorf("%s: it printed\n%s", args, printed)
	}
	return said
}

// StopAnswering runs a command, sends it a signal, and returns its stdout and stderr. The signal is sent once `word`
// was printed on stderr. If `word` is empty, the signal is sent once the command is at work. The command must end
// promptly with this code.
func (p *Program) StopAnswering(t *testing.T, args, word string, sig syscall.Signal, code int,
	environment ...string) (printed, said string) {
	t.Helper()
	Obeyed(t, sig)
	if err := os.WriteFile(filepath.Join(p.Dir, "text.txt"),
		bytes.Repeat([]byte("so it was said. "), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(p.Dir, "text.txt"))
	c := p.Command(t, strings.Fields(args))
	c.Env = append(c.Env, environment...)
	var stdout bytes.Buffer
	stderr := listener{word: word, heard: make(chan struct{})}
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	if word != "" {
		select {
		case <-stderr.heard:
		case err := <-ended:
			t.Fatalf("%s: ended with %v before it said %q:\n%s", args, err, word, stderr.text)
		}
	}
	for word == "" && !AtWork(t, c.Process.Pid) {
		time.Sleep(5 * time.Millisecond) // the processor time can only be polled
	}
	told := time.Now()
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%s: ended with %v, want exit code %d", args, err, code)
	}
	if took := time.Since(told); took > promptly {
		t.Errorf("%s: it took %v to end", args, took)
	}
	return stdout.String(), stderr.text
}

// listener keeps what is written to it, and closes `heard` once its word has occurred.
type listener struct {
	word, text string
	heard      chan struct{}
}

func (l *listener) Write(text []byte) (int, error) {
	before := strings.Contains(l.text, l.word)
	l.text += string(text)
	if !before && strings.Contains(l.text, l.word) {
		close(l.heard)
	}
	return len(text), nil
}

// AtWork reports whether a process has finished its start and is at work.
func AtWork(t *testing.T, pid int) bool { return processorTime(t, pid) >= atWork }

// processorTime returns the processor time that a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip("no /proc to see by whether a process is at work: ", err)
	}
	_, behind, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(behind)
	if fields[0] == "Z" {
		t.Fatal("it ended before it could be stopped")
	}
	ticks := 0
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
