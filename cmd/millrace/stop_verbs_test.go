package main

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
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

// ends is every signal that ends a verb, and the exit code that it gives.
var ends = map[syscall.Signal]int{syscall.SIGHUP: 129, syscall.SIGINT: 130, syscall.SIGTERM: 143}

// A verb that a signal stops says so and ends at once with 128 + the signal: what a search had found by then is
// neither printed nor written, and nothing half-written is left.
func TestSignalsStopEveryVerb(t *testing.T) {
	for _, args := range []string{
		"plan --model gpt --set layers=24 --cluster dapple-a --batch 256 -o out.json",
		"tune --model gnmt --cluster avgpipe --batch 128 --pipelines 8 --memory 16GiB --rivals -o out.json",
		"reproduce avgpipe-fig11",
	} {
		for signal, code := range ends {
			t.Run(strings.Fields(args)[0]+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
				said := stopAtWork(t, p, args, "", signal, code)
				if !strings.HasPrefix(said, "millrace: stopped by SIG") || strings.Count(said, "\n") != 1 {
					t.Errorf("it said %q", said)
				}
				if left := p.List(t, "."); left != "" {
					t.Errorf("it left\n%s", left)
				}
			})
		}
	}
}

// A verb that does not look whether it was stopped is ended, and leaves no half of a file.
func TestSignalsStopADeafVerb(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Cache: t.TempDir()}
	said := stopAtWork(t, p, "deaf", "writing", syscall.SIGTERM, 143)
	if said != "writing\nmillrace: stopped by SIGTERM before it was done\n" {
		t.Errorf("it said %q", said)
	}
	if left := p.List(t, "."); left != "" {
		t.Errorf("it left\n%s", left)
	}
}

// Training that is stopped while another process measures its profile ends as that process does.
func TestSignalsStopTrainingThatMeasures(t *testing.T) {
	p := trainer(t)
	said := stopAtWork(t, p, "train --model gpt --set context=16 --data text.txt --batch 64 --out run",
		"profile: measuring", syscall.SIGTERM, 143)
	if strings.Contains(said, "finishing") || strings.Contains(said, "killed") {
		t.Errorf("it said %q", said)
	}
	if left := p.List(t, "run"); left != "" {
		t.Errorf("it left\n%s", left)
	}
}

// atWork is the processor time after which a process is in the middle of what it was started for.
const atWork = 150 * time.Millisecond

// promptly is how long a verb may take to end; machines that are busy with other tests take longer.
const promptly = 5 * time.Second

// obeyed skips a test where whoever runs the tests has them ignore a signal, as nohup does: millrace ignores it too.
func obeyed(t *testing.T, sig syscall.Signal) {
	if signal.Ignored(sig) {
		t.Skip(sig, " is ignored here")
	}
}

// stopAtWork runs a command, signals it once it has said a word, or without one is at work, and is
// what it said. It must end promptly with this code and print nothing.
func stopAtWork(t *testing.T, p *clitest.Program, args, word string, sig syscall.Signal, code int) (said string) {
	t.Helper()
	obeyed(t, sig)
	if err := os.WriteFile(filepath.Join(p.Dir, "text.txt"),
		bytes.Repeat([]byte("so it was said. "), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(p.Dir, "text.txt"))
	c := p.Command(t, strings.Fields(args))
	var stdout bytes.Buffer
	stderr := listener{word: word, heard: make(chan struct{})}
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if word != "" {
		<-stderr.heard
	}
	for busy := time.Duration(0); word == "" && busy < atWork; busy = processorTime(t, c.Process.Pid) {
		time.Sleep(5 * time.Millisecond) // nothing tells when a process has worked for so long
	}
	told := time.Now()
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%s: ended with %v, want exit code %d", args, err, code)
	}
	if took := time.Since(told); took > promptly {
		t.Errorf("%s: it took %v to end", args, took)
	}
	if stdout.Len() > 0 {
		t.Errorf("%s: it printed\n%s", args, stdout.String())
	}
	return stderr.text
}

// listener keeps what is written to it, and closes heard once a word was among it.
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

// processorTime is what a process and its children that have ended have used.
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
	for _, field := range fields[11:13] { // utime and stime, of which there are 100 a second
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
