package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// overlaid returns a file for the go command's flag -overlay, so that it builds with changed source files. Each change
// inserts a text into a file of this repository, before the first occurrence of another text.
func overlaid(t *testing.T, added []struct{ file, before, text string }) string {
	t.Helper()
	replaced := map[string]string{}
	for _, a := range added {
		path, err := filepath.Abs(filepath.Join("..", "..", "..", a.file))
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, tail, found := strings.Cut(string(source), a.before)
		if !found {
			t.Fatalf("%s has no %q any more", a.file, a.before)
		}
		own := filepath.Join(t.TempDir(), filepath.Base(a.file))
		if err := os.WriteFile(own, []byte(head+a.text+a.before+tail), 0o666); err != nil {
			t.Fatal(err)
		}
		replaced[path] = own
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// shown reads a line of code that docs/extending.md shows, and indents it.
func shown(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return "\t" + string(text)
}

// TestAPolicyIsARow adds two weight policies, 3bw and 4bw, to copies of source files. A policy needs a row in a table,
// its name in a family's list, and a row with its equation in a test. The documentation shows the rows of 3bw. With the
// copies, this folder's program knows 3bw, and the command draws streams under both policies. Training under each
// policy computes the same bits as its equation.
func TestAPolicyIsARow(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles packages anew")
	}
	row, equation := shown(t, "row.txt"), shown(t, "equation.txt")
	four := strings.NewReplacer("3bw", "4bw", "own-2", "own-3", "needs: 3", "needs: 4", "older: 2", "older: 3",
		"t - 2", "t - 3")
	overlay := overlaid(t, []struct{ file, before, text string }{
		{"schedule/policy.go", "	{policy: Elastic,", row + four.Replace(row)},
		{"schedule/family/rr.go", "schedule.Latest},", `"3bw", "4bw", `},
		{"run/policy_test.go", "	{schedule.Latest, ", equation + four.Replace(equation)},
	})
	run := func(args ...string) string {
		t.Helper()
		c := exec.Command(args[0], args[1:]...)
		c.Dir = filepath.Join("..", "..", "..")
		said, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, said)
		}
		return string(said)
	}
	const want = "stage 0: 3 versions\nstage 1: 3 versions\nstage 2: 3 versions\n"
	if said := run("go", "run", "-overlay", overlay, "./examples/extending/policy", "3bw"); said != want {
		t.Errorf("it says\n%s; want\n%s", said, want)
	}
	millrace := filepath.Join(t.TempDir(), "millrace")
	run("go", "build", "-overlay", overlay, "-o", millrace, "./cmd/millrace")
	for _, c := range []struct {
		args     string
		stages   int
		versions int
	}{
		{"--weights 2bw --workers 5", 5, 2}, {"--weights 3bw --workers 5", 5, 3}, {"--weights 4bw --workers 5", 5, 4},
		{"--weights 4bw --workers 2 --micro-batches 8", 2, 4}, {"--weights 3bw --workers 1", 1, 3},
	} {
		var program struct {
			Stages []struct{ Versions int }
		}
		said := run(append([]string{millrace, "schedule", "1f1b-rr", "--json"}, strings.Fields(c.args)...)...)
		if err := json.Unmarshal([]byte(said), &program); err != nil {
			t.Fatalf("%s: %v: %s", c.args, err, said)
		}
		if len(program.Stages) != c.stages {
			t.Errorf("%s: %d stages: %s", c.args, len(program.Stages), said)
		}
		for _, s := range program.Stages {
			if s.Versions != c.versions {
				t.Errorf("%s: a stage holds %d versions; want %d", c.args, s.Versions, c.versions)
			}
		}
	}
	run("go", "test", "-overlay", overlay, "-short", "-count=1", "-run",
		"^(TestStreamsEqualTheirEquations|TestEveryStreamHasAnEquation)$", "./run")
}
