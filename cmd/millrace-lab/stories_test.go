package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine/torch"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(args []string) int {
		cli.FirstLine = time.Hour // prevents log lines on a slow machine
		return cli.ExecuteAs(labCommand(), args)
	})
}

// TestStories runs the stories of a user without libtorch.
func TestStories(t *testing.T) {
	clitest.Tell(t, "testdata/stories", filepath.Join(t.TempDir(), "no-library.so"), true)
}

// TestTorchStories runs the stories of training.
func TestTorchStories(t *testing.T) {
	clitest.NeedTorch(t)
	native, _ := torch.Find()
	clitest.Tell(t, "testdata/torch", native, false)
}

func TestHelpIsShort(t *testing.T) { clitest.HelpIsShort(t, labCommand()) }

// Every command that a document names has its verb and its flags.
func TestTheDocumentsCommandsAreThere(t *testing.T) { clitest.CommandsAreThere(t, labCommand) }

// Missing data is reported before anything is measured.
func TestDataIsLookedAtFirst(t *testing.T) {
	p := clitest.Trainer(t)
	for _, args := range []string{"bench peers", "bench speedup --model mlp", "bench orders --model mlp"} {
		out := p.Run(t, append(strings.Fields(args), "--data", "nosuch"), false)
		if !strings.HasPrefix(out, `millrace-lab: data: there is no file and no data set "nosuch"; `) ||
			!strings.HasSuffix(out, "\nexit 2\n") {
			t.Errorf("%s: %s", args, out)
		}
	}
}

// A verb that is stopped by a signal says so, and ends at once with exit code 128 + the signal's number.
func TestSignalsStopAnExperiment(t *testing.T) {
	for signal, code := range clitest.Ends {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"),
				Cache: t.TempDir()}
			said := p.StopAtWork(t, "reproduce avgpipe-fig11", "", signal, code)
			if !strings.HasPrefix(said, "millrace-lab: stopped by SIG") || strings.Count(said, "\n") != 1 {
				t.Errorf("it said %q", said)
			}
		})
	}
}
