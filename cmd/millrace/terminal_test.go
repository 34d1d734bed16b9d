package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// onTerminal is what a terminal of so many columns is sent by a verb, up to its end.
func onTerminal(t *testing.T, columns uint16, args string, env ...string) string {
	t.Helper()
	at, other := openTerminal(t, columns)
	defer at.Close()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	c := p.Command(t, strings.Fields(args))
	c.Env = append(append(c.Env, "TERM=xterm", "NO_COLOR="), env...)
	c.Stdin, c.Stdout, c.Stderr = other, other, other
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	other.Close()
	text, _ := io.ReadAll(at) // which ends with an error where the other side is closed
	if err := c.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, text)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

// No line is wider than the terminal, but a path that has one for itself; colours are there, and not with NO_COLOR.
func TestEveryVerbFitsItsTerminal(t *testing.T) {
	for _, args := range []string{
		"doctor", "model ls", "model show gpt", "model kinds", "cluster ls", "cluster show dapple-a:4x8", "schedule ls",
		"schedule zb-v", "schedule compare", "data show digits", "plan -h", "train -h", "import -h", "help train all",
		"simulate --model gpt --cluster dapple-a:1x4 --batch 32 --stages 4 --schedule 1f1b --micro-batch 4",
		"plan --model gpt --cluster dapple-a:1x4 --batch 32",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			for _, columns := range []uint16{80, 100, 200} {
				coloured := onTerminal(t, columns, args)
				for line := range strings.SplitSeq(coloured, "\n") {
					line = escape.ReplaceAllString(line[strings.LastIndexByte(line, '\r')+1:], "")
					if n := terminal.Width(line); n > int(columns) && strings.Contains(strings.TrimSpace(line), " ") {
						t.Errorf("a line has %d of %d columns: %q", n, columns, line)
					}
				}
				if !strings.Contains(coloured, "\x1b[") && args != "data show digits" {
					t.Errorf("no colours in\n%s", coloured)
				}
			}
			plain := onTerminal(t, 100, args, "NO_COLOR=1")
			if strings.Contains(strings.ReplaceAll(plain, "\x1b[K", ""), "\x1b") { // the live line's end is no colour
				t.Errorf("colours in spite of NO_COLOR in\n%q", plain)
			}
		})
	}
}

// What is done is shown in one line, which is drawn over itself and gone at the end.
func TestAMeterIsOneLine(t *testing.T) {
	const columns = 60
	text := onTerminal(t, columns, "tune --model gnmt --cluster avgpipe --batch 128 --most-pipelines 8 --simulate")
	draws := regexp.MustCompile("\r(tune: [^\r\n\x1b]*)\x1b\\[K").FindAllStringSubmatch(text, -1)
	if len(draws) < 2 {
		t.Fatalf("it was drawn %d times:\n%q", len(draws), text)
	}
	for _, d := range draws {
		if n := terminal.Width(d[1]); n >= columns {
			t.Errorf("%q takes %d columns", d[1], n)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if left := line[strings.LastIndexByte(line, '\r')+1:]; strings.HasPrefix(left, "tune: ") {
			t.Errorf("a line of it stays: %q", left)
		}
	}
}
