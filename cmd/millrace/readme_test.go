package main

import (
	"os"
	"strings"
	"testing"
)

// What the README shows of a schedule is what is printed today; what it shows of times
// depends on the machine.
func TestTheReadmesScheduleIsTheOnePrinted(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{dir: t.TempDir(), native: "none", cache: t.TempDir()}
	checked := 0
	for block := range strings.SplitSeq(string(text), "\n    $ bin/millrace ") {
		command, rest, _ := strings.Cut(block, "\n")
		if !strings.HasPrefix(command, "schedule ") {
			continue
		}
		want := ""
		for line := range strings.Lines(rest) {
			shown, ok := strings.CutPrefix(line, "    ")
			if !ok {
				break
			}
			want += shown
		}
		if got := p.run(t, strings.Fields(command), false); got != want {
			t.Errorf("millrace %s prints\n%s\nthe README has\n%s", command, got, want)
		}
		checked++
	}
	if checked == 0 {
		t.Error("the README shows no schedule")
	}
}

// Every example of a job and of a cluster that is shipped is read.
func TestTheExamplesAreRead(t *testing.T) {
	p := &program{dir: "../..", native: "none", cache: t.TempDir()}
	for _, args := range []string{
		"plan --model mlp --cluster examples/two-nodes.yaml",
		"plan --job examples/demo.yaml --workers 2 --stages 2 --cluster examples/two-nodes.yaml",
	} {
		if out := p.run(t, strings.Fields(args), true); out != "" {
			t.Errorf("millrace %s: %s", args, out)
		}
	}
}
