package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/names"
)

// measures runs a plan that needs few measurements, and returns its output, which must have a plan.
func measures(t *testing.T, p *clitest.Program) string {
	c := p.Command(t, strings.Fields("plan --model mlp --workers 2 --batch 1"))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil || !strings.Contains(out.String(), "\npredicted ") {
		t.Errorf("%v: %s", err, &out)
	}
	return out.String()
}

// kept returns the rows of profile ls.
func kept(t *testing.T, p *clitest.Program) (rows []keptRow) {
	if err := json.Unmarshal([]byte(p.Run(t, []string{"profile", "ls", "--json"}, false)), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// If two processes need the same measurements at once, one measures and the other uses its results.
func TestMeasurementsAreSharedByProcesses(t *testing.T) {
	p := clitest.Trainer(t)
	t.Parallel()
	var said [2]string
	var all sync.WaitGroup
	for i := range said {
		all.Go(func() { said[i] = measures(t, p) })
	}
	all.Wait()
	_, one, _ := strings.Cut(said[0], "\npredicted")
	if _, other, _ := strings.Cut(said[1], "\npredicted"); one != other {
		t.Errorf("what one predicts is\n%s\nand the other\n%s", one, other)
	}
	rows := kept(t, p)
	for _, r := range rows {
		if r.Problem != "" || r.Last.IsZero() || r.Model == "mlp" && (len(r.Sizes) != 1 || r.Visits[0] > 15) {
			t.Errorf("%+v: measured once it has up to 15 visits to one size", r)
		}
	}
	if len(rows) != 2 {
		t.Errorf("there are %+v, want mlp and messages", rows)
	}
	if again := measures(t, p); strings.Contains(again, "profile:") {
		t.Errorf("it is measured again:\n%s", again)
	}
}

// If another millrace measures on this machine, the program says that it waits, and then measures.
func TestMeasuringWaitsForAnother(t *testing.T) {
	p := clitest.Trainer(t)
	t.Parallel()
	folder := filepath.Join(p.Cache, "millrace", "profiles")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	other, err := os.Create(filepath.Join(folder, "measuring-"+names.File(cli.HostName())+".lock"))
	if err == nil {
		err = syscall.Flock(int(other.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c := p.Command(t, strings.Fields("plan --model mlp --workers 2 --batch 1"))
	c.Env = append(c.Env, firstLine+"=10ms")
	log, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	waited := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.Contains(line, "waiting for another millrace that measures on this machine"):
			waited = true
			other.Close()
		case strings.Contains(line, "round") && !waited:
			t.Error("it measures beside the other")
		}
	}
	if err := c.Wait(); err != nil || !waited {
		t.Errorf("it waited: %v, %v", waited, err)
	}
}

// A file of measurements that cannot be read is named, measured again and replaced.
func TestDamagedMeasurementsAreMadeAgain(t *testing.T) {
	p := clitest.Trainer(t)
	t.Parallel()
	measures(t, p)
	files, _ := filepath.Glob(filepath.Join(p.Cache, "millrace", "profiles", "mlp-*"))
	if len(files) != 1 {
		t.Fatalf("there are %q", files)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], whole[:len(whole)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	out := measures(t, p)
	if want := files[0] + "); what it held is measured again\n"; strings.Count(out, want) != 1 {
		t.Errorf("it says %q, want %q in it once", out, want)
	}
	for _, r := range kept(t, p) {
		if r.Problem != "" {
			t.Errorf("it is damaged still: %+v", r)
		}
	}
}

// If measurements cannot be kept, a warning says why, and the plan uses them anyway.
func TestMeasurementsThatCannotBeKeptAreUsed(t *testing.T) {
	for name, c := range map[string]struct {
		folder, limit, why string
	}{
		"no folder": {"/dev/null/cache", "", "mkdir /dev/null: not a directory"},
		"full disk": {"", "1500", "file too large"}, // only the file of layer times reaches 1500 bytes
	} {
		t.Run(name, func(t *testing.T) {
			p := clitest.Trainer(t)
			t.Parallel()
			cache := p.Cache
			if p.FileLimit = c.limit; c.folder != "" {
				p.Cache = c.folder
			}
			out := measures(t, p)
			want := fmt.Sprintf("%s; what is measured now cannot be kept, and the next run measures it again\n", c.why)
			if strings.Count(out, want) != 1 {
				t.Errorf("it says %q, want %q in it once", out, want)
			}
			for _, r := range kept(t, &clitest.Program{Dir: p.Dir, Native: p.Native, Cache: cache}) {
				if r.Problem != "" {
					t.Errorf("it leaves a file that cannot be read: %+v", r)
				}
			}
		})
	}
}
