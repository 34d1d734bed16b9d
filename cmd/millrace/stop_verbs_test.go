package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// A verb that is stopped by a signal prints the best result so far, and writes it if asked to. At the end it says which
// file has the result, or that nothing is kept, and exits with 128 + the signal. Nothing half-written is left.
func TestSignalsStopEveryVerb(t *testing.T) {
	for _, args := range []string{
		"plan --model gpt --set layers=24 --cluster dapple-a --batch 256 --time 1m -o out.json",
		"tune --model gnmt --cluster avgpipe --batch 128 --pipelines 8 --memory 16GiB --rivals -o out.json",
	} {
		for signal, code := range clitest.Ends {
			t.Run(strings.Fields(args)[0]+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"),
					Cache: t.TempDir()}
				printed, said := p.StopAnswering(t, args, "", signal, code)
				lines := strings.Split(strings.TrimSpace(said), "\n")
				last := lines[len(lines)-1]
				left := p.List(t, ".")
				switch {
				case !strings.HasPrefix(last, "millrace: stopped by SIG") || !strings.Contains(said, "once more ends at once"):
					t.Errorf("it said %q", said)
				case strings.Contains(last, "so far"):
					if printed == "" || left != "out.json\n" || !strings.Contains(last, "in out.json") {
						t.Errorf("it said %q, printed %q, and left %q", last, printed, left)
					}
				case printed != "" || left != "" || !strings.Contains(last, "nothing is kept"):
					t.Errorf("it said %q, printed %q, and left %q", last, printed, left)
				}
			})
		}
	}
}

// A search that is stopped in the middle leaves its best result in a file, and that plan can be simulated.
func TestAStoppedSearchLeavesItsBest(t *testing.T) {
	t.Parallel()
	for command, reader := range map[string]string{
		"plan --model gpt --set layers=24 --cluster dapple-a --batch 256 --time 1m": "simulate --model gpt " +
			"--set layers=24 --cluster dapple-a --plan out.json --json",
		"tune --model gnmt --cluster avgpipe --batch 128 --pipelines 8 --memory 16GiB --rivals": "simulate --cluster " +
			"avgpipe --plan out.json --json",
	} {
		t.Run(strings.Fields(command)[0], func(t *testing.T) {
			p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"),
				Cache: t.TempDir()}
			var printed, said string
			// It is unknown when a search has its first plan. If the search was stopped before that, the test searches
			// again for longer.
			for after := time.Second; after < time.Minute; after *= 2 {
				printed, said = p.StopAnswering(t, command+" -o out.json", strings.Fields(command)[0]+": ", syscall.SIGINT, 130,
					firstLine+"="+after.String())
				if !strings.Contains(said, "nothing is kept") {
					break
				}
			}
			if !strings.Contains(printed, "predict") || !strings.Contains(said, "so far, ") ||
				!strings.Contains(said, " in out.json") {
				t.Errorf("it said %q and printed\n%s", said, printed)
			}
			if out := p.Run(t, strings.Fields(reader), false); strings.Contains(out, "exit") {
				t.Errorf("what it left cannot be simulated:\n%s", out)
			}
		})
	}
}

// A profile that is stopped keeps its measurements, and says which sizes it has measured. The next profile continues
// from them.
func TestAStoppedProfileKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	p.Cache = t.TempDir()
	const args = "profile gpt --set context=32 --batch 8 --workers 2 --thorough"
	answer, code := atKey(t, p, args, once("micro-batch"))
	if !strings.HasPrefix(answer, "millrace: stopped by SIGINT before it was done; what ") ||
		!strings.Contains(answer, "is kept") || code != 130 {
		t.Errorf("code %d, said %q", code, answer)
	}
	if listed := p.Run(t, strings.Fields("profile ls"), false); !strings.Contains(listed, "gpt") ||
		!strings.Contains(listed, "(messages)") {
		t.Errorf("there is\n%s", listed)
	}
}

// A verb that never checks whether it was stopped is ended, and leaves no partial file.
func TestSignalsStopADeafVerb(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Cache: t.TempDir()}
	said := p.StopAtWork(t, "deaf", "writing", syscall.SIGTERM, 143)
	if said != "writing\nmillrace: stopped by SIGTERM before it was done; nothing was written\n" {
		t.Errorf("it said %q", said)
	}
	if left := p.List(t, "."); left != "" {
		t.Errorf("it left\n%s", left)
	}
}

// If training gets a signal while another process still measures the profile, training ends at once with the signal's
// exit code. It does not finish a step, kills no process, and leaves no files in its folder.
func TestSignalsStopTrainingThatMeasures(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	said := p.StopAtWork(t, "train --model gpt --set context=16 --data text.txt --batch 64 --out run",
		"profile: measuring", syscall.SIGTERM, 143)
	if strings.Contains(said, "finishing") || strings.Contains(said, "killed") {
		t.Errorf("it said %q", said)
	}
	if left := p.List(t, "run"); left != "" {
		t.Errorf("it left\n%s", left)
	}
}
