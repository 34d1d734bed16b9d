package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// logged writes some records as a process with this environment does, and returns the text.
func logged(t *testing.T, form string, environment ...string) string {
	t.Helper()
	before, at, was := slog.Default(), step.Load(), Records()
	t.Cleanup(func() { slog.SetDefault(before); step.Store(at); records.Store(was) })
	var out bytes.Buffer
	step.Store(0)
	if err := logTo(&out, form, "millrace", true, environment); err != nil {
		t.Fatal(err)
	}
	Say("nothing yet", "loss", 2.5)
	AtStep(6) // steps count from 0, so this is the seventh
	slog.Error("it broke:\n  worker 1\n  worker 2 \x1b[2J", "error", errors.New("disk full"))
	Say("saved", "step", 5)
	slog.Debug("for machines alone")
	slog.With("run", "r").Info("with more", "key", "")
	l := &liner{to: &out}
	fmt.Fprint(l, "half a ")
	fmt.Fprint(l, "line\nand more")
	if form == asJSON {
		fmt.Fprint(l, "\n{\"msg\":\"of another\",\"rank\":3,\"host\":\"x\",\"step\":7}\n")
	}
	return out.String()
}

// third is the environment of rank 3 under a launcher that does not prefix lines with ranks.
var third = []string{"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456"}

func TestPeopleReadLines(t *testing.T) {
	want := "nothing yet\nmillrace: it broke:\n  worker 1\n  worker 2 \\u001b[2J error=\"disk full\"\nsaved\n" +
		"with more key=\"\" run=r\nhalf a line\n"
	if got := logged(t, human); got != want {
		t.Errorf("it reads\n%s, want\n%s", got, want)
	}
	if got := logged(t, "", "MILLRACE_RANK=1", "MILLRACE_WORLD_SIZE=2", "MILLRACE_LAUNCHER=millrace",
		"MILLRACE_MASTER_ADDR=localhost"); got != want {
		t.Errorf("under a launcher that puts the rank in front it reads\n%s, want\n%s", got, want)
	}
	ranked := "[3] " + strings.ReplaceAll(strings.TrimSuffix(want, "\n"), "\n", "\n[3] ") + "\n"
	if got := logged(t, human, third...); got != ranked {
		t.Errorf("of several it reads\n%s, want\n%s", got, ranked)
	}
}

// Each JSON record has the rank and the host of its process. If a record names a step, it keeps that step. Otherwise it
// gets the newest step of its process. Before the first step, a record has no step.
func TestMachinesReadRecords(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(logged(t, asJSON, third...)), "\n")
	steps := []any{nil, 7.0, 5.0, 7.0, 7.0, 7.0, 7.0, 7.0}
	says := []string{"nothing yet", "it broke:\n  worker 1\n  worker 2 \x1b[2J", "saved", "for machines alone",
		"with more", "half a line", "and more", "of another"}
	if len(lines) != len(says) {
		t.Fatalf("%d records: %q", len(lines), lines)
	}
	for i, line := range lines {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r["msg"] != says[i] || r["rank"] != 3.0 || r["host"] == "" || r["host"] == nil || r["step"] != steps[i] ||
			strings.Count(line, `"step"`) > 1 {
			t.Errorf("record %d is %s; want %q of step %v", i, line, says[i], steps[i])
		}
	}
	if err := logTo(nil, "xml", "millrace", true, nil); err == nil || !strings.Contains(err.Error(), `not "xml"`) {
		t.Error(err)
	}
}
