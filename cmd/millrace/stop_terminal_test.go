package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/stage/optim"
)

// atKey returns what a verb at a terminal prints after Ctrl-C, and its exit code. The key is typed as soon as `ready`
// returns true for the output so far.
func atKey(t *testing.T, p *clitest.Program, args string, ready func(said string, pid int) bool) (answer string,
	code int) {
	t.Helper()
	clitest.Obeyed(t, syscall.SIGINT)
	at, c := startAt(t, p, 200, args)
	defer at.Close()
	said, typed, behind := listen(at), false, 0
	defer time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() }).Stop() // for a verb that is never `ready`
	for text, open := "", true; open; {
		select {
		case piece, more := <-said:
			text, open = text+piece, more
		case <-time.After(5 * time.Millisecond):
		}
		if !typed && ready(text, c.Process.Pid) {
			typed, behind = true, len(text)
			if _, err := at.WriteString("\x03"); err != nil {
				t.Fatal(err)
			}
		}
		answer = text[behind:]
	}
	_ = c.Wait() // ProcessState says how the verb ended
	if _, after, echoed := strings.Cut(answer, "^C"); typed && echoed {
		lines := strings.Split(strings.ReplaceAll(after, "\r\n", "\n"), "\n")
		for i, line := range lines { // each line as it is finally visible, after the live line was drawn over
			lines[i] = escape.ReplaceAllString(line[strings.LastIndexByte(line, '\r')+1:], "")
		}
		return strings.Join(lines, "\n"), c.ProcessState.ExitCode()
	}
	t.Fatalf("%s: Ctrl-C was typed behind %d bytes, and is not echoed in\n%s", args, behind, answer)
	return
}

// listen returns a channel with the output of a terminal, in pieces, until the terminal is closed.
func listen(at *os.File) <-chan string {
	said := make(chan string)
	go func() {
		defer close(said)
		for piece := make([]byte, 4096); ; {
			n, err := at.Read(piece)
			if n > 0 {
				said <- string(piece[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return said
}

// once returns a function that returns true as soon as a word was printed.
func once(word string) func(string, int) bool {
	return func(said string, _ int) bool { return strings.Contains(said, word) }
}

// written returns a function that returns true as soon as a file is being written.
func written(p *clitest.Program, name string) func(string, int) bool {
	dir, file := filepath.Split(name)
	return func(string, int) bool {
		found, _ := filepath.Glob(filepath.Join(p.Dir, dir, "."+file+"-*"))
		return len(found) > 0
	}
}

// Ctrl-C at a terminal ends a verb. The verb says what it leaves. It leaves exactly that, and no partial file.
func TestCtrlCAtATerminal(t *testing.T) {
	const nothing = "millrace: stopped by SIGINT before it was done; nothing was written\n"
	t.Run("checkpoint export", func(t *testing.T) {
		t.Parallel()
		p := bare(t)
		saveLarge(t, p)
		before := p.List(t, ".")
		answer, code := atKey(t, p, "checkpoint export r -o w.safetensors", written(p, "w.safetensors"))
		if answer != nothing || code != 130 || p.List(t, ".") != before {
			t.Errorf("code %d, left %q, said %q", code, p.List(t, "."), answer)
		}
	})
	t.Run("report", func(t *testing.T) {
		t.Parallel()
		p := bare(t)
		manySteps(t, p)
		before := p.List(t, "r")
		answer, code := atKey(t, p, "report r", func(_ string, pid int) bool { return clitest.AtWork(t, pid) })
		if answer != nothing || code != 130 || p.List(t, "r") != before {
			t.Errorf("code %d, left %q, said %q", code, p.List(t, "r"), answer)
		}
	})
	t.Run("doctor", func(t *testing.T) {
		t.Parallel()
		p := bare(t)
		answer, code := atKey(t, p, "doctor --links -o c.yaml", once("doctor: "))
		if answer != nothing || code != 130 || p.List(t, ".") != "" {
			t.Errorf("code %d, left %q, said %q", code, p.List(t, "."), answer)
		}
	})
	for verb, args := range map[string]string{
		"plan": "plan --model gpt --set layers=24 --cluster dapple-a --batch 256 --time 1m -o out.json",
		"tune": "tune --model gnmt --cluster avgpipe --batch 128 --pipelines 8 --memory 16GiB --rivals -o out.json",
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			p := bare(t)
			answer, code := atKey(t, p, args, once(verb+": "))
			left, kept := p.List(t, "."), strings.Contains(answer, "so far, ") && strings.Contains(answer, " in out.json")
			if !strings.HasPrefix(answer, "millrace: SIGINT: showing ") || code != 130 ||
				!(kept && left == "out.json\n" || left == "" && strings.Contains(answer, "nothing is kept\n")) {
				t.Errorf("code %d, left %q, said %q", code, left, answer)
			}
		})
	}
	t.Run("launch", func(t *testing.T) {
		t.Parallel()
		p := profiled(t)
		line := "launch -n 2 -- " + strings.Replace(small, "--steps 6", "--steps 1000000", 1) + "r"
		answer, code := atKey(t, p, line, once("/1,000,000  loss"))
		saved := p.List(t, "r/checkpoints")
		if !strings.Contains(answer, "SIGINT: telling all processes to stop; once more ends at once\n") ||
			!strings.Contains(answer, ", saved r/checkpoints/step-") || code != 130 ||
			!strings.Contains(saved, "manifest.json") || strings.Contains(saved, "partial") {
			t.Errorf("code %d, left %q, said %q", code, saved, answer)
		}
	})
}

// A verb that continues after Ctrl-C in order to save ends at once after a second Ctrl-C. It says so, and leaves no
// partial file.
func TestCtrlCTwiceEndsAtOnce(t *testing.T) {
	t.Parallel()
	clitest.Obeyed(t, syscall.SIGINT)
	p := bare(t)
	at, c := startAt(t, p, 200, "saves-for-ever")
	defer at.Close()
	defer time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() }).Stop()
	text, typed := "", 0
	for piece := range listen(at) {
		text += piece
		for i, word := range []string{"writing", "once more ends at once"} {
			if typed == i && strings.Contains(text, word) {
				typed++
				time.Sleep(time.Duration(i) * (cli.SameSignal + 50*time.Millisecond)) // an earlier key is the same signal
				if _, err := at.WriteString("\x03"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	_ = c.Wait()
	const want = "millrace: ended at once by another SIGINT; no file is half-written, and what was being saved is lost\r\n"
	if !strings.HasSuffix(text, want) || c.ProcessState.ExitCode() != 130 || p.List(t, ".") != "" {
		t.Errorf("code %d, left %q, said %q", c.ProcessState.ExitCode(), p.List(t, "."), text)
	}
}

// saveLarge makes a run r with a checkpoint that takes a long time to read and write.
func saveLarge(t *testing.T, p *clitest.Program) {
	t.Helper()
	const elements = 24 << 20
	store := &checkpoint.Store{Dir: filepath.Join(p.Dir, "r", "checkpoints")}
	draft := checkpoint.DraftName(1, 1)
	at := filepath.Join(store.Dir, draft)
	if err := checkpoint.MakeDraft(at); err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.WriteFile(at, "stage-000.safetensors", []checkpoint.Tensor{{Name: "a.weight",
		DType: engine.Float32, Shape: []int64{elements}, Data: make([]byte, 4*elements)}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := checkpoint.Seal(checkpoint.Manifest{Model: "mine", ModelID: "0123456789abcdef", Engine: "torch",
		Float: "F32", Steps: 1, Batch: 16, Samples: 16, MicroBatch: 4, Optimizer: optim.Settings{Kind: optim.SGD},
		Rate:       optim.Rate{Kind: optim.Constant, Base: 0.1},
		Asked:      &checkpoint.Asked{Steps: 1},
		Parameters: []checkpoint.Parameter{{Name: "a.weight", Shape: []int64{elements}}}}, []checkpoint.File{f})
	if err == nil {
		_, err = store.Commit(draft, text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// manySteps makes a run r with so many steps that drawing its report takes a long time.
func manySteps(t *testing.T, p *clitest.Program) {
	t.Helper()
	dir := filepath.Join(p.Dir, "r")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"profile mlp --analytic --cluster dapple-b:2 --batch 8 -o r/profile.json",
		"plan --model mlp --cluster dapple-b:2 --batch 8 --stages 2 -o r/plan.json"} {
		if out := p.Run(t, strings.Fields(args), true); out != "" {
			t.Fatal(out)
		}
	}
	var text strings.Builder
	for step := range 100_000 {
		line, err := json.Marshal(metrics.StepValues{Time: time.Unix(int64(step), 0).UTC(), Step: step, Loss: 1, StepS: 1,
			BusyS: []float64{0.5, 0.25}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s\n", line)
	}
	write(t, filepath.Join(dir, "metrics.jsonl"), text.String())
}

// startAt starts the program at a terminal with this many columns; `at` is the test's side of the terminal.
func startAt(t *testing.T, p *clitest.Program, columns uint16, args string, env ...string) (at *os.File, c *exec.Cmd) {
	t.Helper()
	at, other := openTerminal(t, columns)
	defer other.Close()
	c = p.Command(t, strings.Fields(args))
	c.Env = append(append(c.Env, "TERM=xterm", "NO_COLOR="), env...)
	c.Stdin, c.Stdout, c.Stderr = other, other, other
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		at.Close()
		t.Fatal(err)
	}
	return at, c
}
