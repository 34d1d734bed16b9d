package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/planning"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/profile/timing"
)

// wrongClock is the name of an environment variable. Its value says how far a process's clock is ahead.
const wrongClock = "MILLRACE_TEST_WRONG_CLOCK"

// firstLine is an environment variable with the delay of a process's first line of progress.
const firstLine = "MILLRACE_TEST_FIRST_LINE"

func TestMain(m *testing.M) {
	clitest.Main(m, func(args []string) int {
		planning.LongestSearch, cli.FirstLine, timing.QuickS = time.Hour, time.Hour, 0.5
		if d, err := time.ParseDuration(os.Getenv(firstLine)); err == nil {
			cli.FirstLine = d
		}
		if wrong, err := time.ParseDuration(os.Getenv(wrongClock)); err == nil {
			together.Clock = func() time.Time { return time.Now().Add(wrong) }
		}
		root := command()
		root.AddCommand(faultyCommands()...)
		return cli.ExecuteAs(root, args)
	})
}

// TestStories runs the stories of a user without libtorch: refusals with their exit codes, plans for described
// hardware, drawings. Record new output with -rewrite, and read it.
func TestStories(t *testing.T) {
	clitest.Tell(t, "testdata/stories", filepath.Join(t.TempDir(), "no-library.so"), true)
}

// TestTorchStories runs the stories of training.
func TestTorchStories(t *testing.T) {
	clitest.NeedTorch(t)
	native, _ := torch.Find()
	clitest.Tell(t, "testdata/torch", native, false) // not at once: two trainings would print that processors are taken
}

// Doctor succeeds whatever it finds, and says how to get what is missing.
func TestDoctorWithoutLibtorch(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	for _, format := range [][]string{{"doctor"}, {"doctor", "--json"}} {
		out := p.Run(t, format, false)
		for _, want := range []string{"cores", "memory", "libtorch"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v does not speak of %s:\n%s", format, want, out)
			}
		}
		if strings.Contains(out, "exit") {
			t.Errorf("%v:\n%s", format, out)
		}
	}
}
