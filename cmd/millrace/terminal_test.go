package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// onTerminal returns what a verb writes to a terminal with this many columns.
func onTerminal(t *testing.T, columns uint16, args string, env ...string) string {
	t.Helper()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	text, err := at(t, p, columns, args, "", "", env...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", args, err, text)
	}
	return text
}

// at returns what a verb writes to a terminal with this many columns, and its error. Once `word` has appeared, the keys
// in `typed` are typed.
func at(t *testing.T, p *clitest.Program, columns uint16, args, word, typed string, env ...string) (string, error) {
	t.Helper()
	at, c := startAt(t, p, columns, args, env...)
	defer at.Close()
	defer time.AfterFunc(2*time.Minute, func() { _ = c.Process.Kill() }).Stop() // for a verb that never prints the word
	var text []byte
	for piece, heard := make([]byte, 4096), word == ""; ; {
		n, err := at.Read(piece)
		text = append(text, piece[:n]...)
		if !heard && bytes.Contains(text, []byte(word)) {
			heard = true
			if _, err := at.WriteString(typed); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil { // the other side may also have been closed
			break
		}
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n"), c.Wait()
}

// brokenWords returns the lines that are wider than the terminal although they could be broken.
func brokenWords(text string, columns int) (wide []string) {
	for line := range strings.SplitSeq(text, "\n") {
		line = escape.ReplaceAllString(line[strings.LastIndexByte(line, '\r')+1:], "")
		if terminal.Width(line) > columns && strings.Contains(strings.TrimSpace(line), " ") {
			wide = append(wide, line)
		}
	}
	return wide
}

// An error that is wider than the terminal is broken between words. Without a terminal it is not broken.
func TestErrorsBreakAtWords(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	const args = "plan --model nonsense"
	text, err := at(t, p, 80, args, "", "")
	if err == nil || len(brokenWords(text, 80)) > 0 || strings.Count(text, "\n") < 3 {
		t.Errorf("%v:\n%s", err, text)
	}
	if piped := p.Run(t, strings.Fields(args), true); strings.Count(piped, "\n") != 2 { // the message and the exit code
		t.Errorf("piped it is\n%s", piped)
	}
	text, _ = at(t, p, 80, args+" --log json", "", "")
	if strings.Count(text, "\n") != 1 {
		t.Errorf("records are\n%s", text)
	}
}

// Ctrl-C at a terminal is answered on a separate line, and the command to resume can be copied.
func TestStoppedAtATerminalATrainingGoesOn(t *testing.T) {
	clitest.Obeyed(t, syscall.SIGINT)
	p := profiled(t)
	text, _ := at(t, p, 80, endless+"r --overwrite", "/100,000,000  loss", "\x03")
	_, answer, stopped := strings.Cut(text, "^C")
	if !stopped || !strings.HasPrefix(answer, "\r\x1b[Kmillrace: SIGINT: ") {
		t.Fatalf("it answers %q", answer)
	}
	const lead = "goes on     "
	_, line, said := strings.Cut(text, lead)
	line, _, _ = strings.Cut(line, "\n")
	if want := endless + "r --resume r/checkpoints"; !said || line != "millrace "+want {
		t.Fatalf("it says %q, want %q in\n%s", line, want, text)
	}
	args := strings.Fields(strings.TrimPrefix(line, "millrace "))
	text, err := at(t, p, 80, strings.Join(append(args, "--dry-run"), " "), "", "")
	if err != nil || !strings.Contains(text, "goes on from r/checkpoints/step-") {
		t.Fatalf("%v:\n%s", err, text)
	}
	if strings.Contains(text, "plan.json") {
		t.Errorf("it names a file that a dry run does not write:\n%s", text)
	}
	if wide := brokenWords(text, 80); len(wide) > 0 {
		t.Errorf("lines are broken inside words: %q", wide)
	}
}

// The lines that a training prints at its end fit the terminal as well. Its output then has another writer
// (cli.FinishesItsStep).
func TestATrainingFitsItsTerminal(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	for _, columns := range []uint16{80, 200} {
		args := strings.Replace(endless, "100000000", "12", 1) + "r --overwrite"
		text, err := at(t, p, columns, args, "", "")
		if wide := brokenWords(text, int(columns)); err != nil || len(wide) > 0 {
			t.Errorf("%v; lines are wider than %d columns: %q", err, columns, wide)
		}
		if !strings.Contains(text, "\x1b[1mPredicted against measured") {
			t.Errorf("no heading is bold in\n%s", text)
		}
	}
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

// No line is wider than the terminal, except a path on a line of its own. There are colours, but not with NO_COLOR.
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
				if wide := brokenWords(coloured, int(columns)); len(wide) > 0 {
					t.Errorf("lines are wider than %d columns: %q", columns, wide)
				}
				if !strings.Contains(coloured, "\x1b[") && args != "data show digits" {
					t.Errorf("no colours in\n%s", coloured)
				}
			}
			plain := onTerminal(t, 100, args, "NO_COLOR=1")
			if strings.Contains(strings.ReplaceAll(plain, "\x1b[K", ""), "\x1b") { // the end of the live line is not a colour
				t.Errorf("colours in spite of NO_COLOR in\n%q", plain)
			}
		})
	}
}

// Progress is shown in one line, which is redrawn in place and removed at the end.
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
