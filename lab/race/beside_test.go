package race

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shell returns a Command that runs a shell script.
func shell(script string, args ...string) Command {
	return Command{Path: "/bin/sh", Args: append([]string{"-c", script}, args...)}
}

// together starts a fake rival with further processes. When the rival's first process ends, it deletes a file.
func together(t *testing.T, file string, beside ...Command) (*Rival, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := shell(`"$0"; rm "$1"`, self, file)
	c.Name, c.Steps, c.Beside, c.Env = "several", 1, beside, append(os.Environ(), actAs+"=well")
	return Start(t.Context(), c)
}

func TestProcessesBesideTheFirstOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waits := shell(`while [ -e "$0" ]; do sleep 0.01; done`, file)
	r, err := together(t, file, waits, waits)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := r.Step(t.Context()); err != nil || w.Samples < 1 {
		t.Errorf("a visit: %+v, %v", w, err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("all end well, and it says %v", err)
	}
}

// If any process of a rival ends early, the rival ends at once with that process's error and output.
func TestALostProcessIsTheRivals(t *testing.T) {
	for script, want := range map[string]string{
		`sleep 0.1; echo no memory >&2; exit 3`: "process 2: exit status 3: no memory",
		`exit 0`:                                "process 2: it ended before it was told to",
	} {
		began := time.Now()
		r, err := together(t, "none", shell("sleep 1000"), shell(script))
		for err == nil {
			_, err = r.Step(t.Context())
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "killed") {
			t.Errorf("%s: %v; want %q", script, err, want)
		}
		if took := time.Since(began); took > closeGrace/2 {
			t.Errorf("%s: after %v", script, took)
		}
	}
	if _, err := together(t, "none", shell("sleep 1000"), Command{Path: "/no/such/program"}); err == nil ||
		!strings.Contains(err.Error(), "process 2: ") {
		t.Errorf("a process that does not start: %v", err)
	}
}

// Here the first process fails by itself, and a second process is lost as a consequence. The end of the second process
// is noticed earlier. Only the error of the first process is reported.
func TestTheFirstProcessIsToBlame(t *testing.T) {
	c := shell(`echo '{"name": "first"}'; echo no memory >&2; sleep 0.5 & exit 7`)
	c.Name, c.Steps, c.Beside = "several", 1, []Command{shell("sleep 0.1; echo reset by peer >&2; exit 1")}
	r, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	<-r.gone
	if err := r.lost(); !strings.Contains(err.Error(), "exit status 7: no memory") {
		t.Errorf("the first process ended by itself, and it says %v", err)
	}
}
