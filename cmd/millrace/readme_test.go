package main

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// matches compares lines with expected lines, in which "..." means any number of lines.
func matches(got, want []string, equal func(a, b string) bool) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] != "..." {
		return len(got) > 0 && equal(got[0], want[0]) && matches(got[1:], want[1:], equal)
	}
	return matches(got, want[1:], equal) || len(got) > 0 && matches(got[1:], want, equal)
}

// tour returns the commands after a "$" in a document, in order, each with the output that the document shows.
func tour(t *testing.T, path string) (all []excerpt) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	goesOn := false
	for line := range strings.SplitSeq(string(text), "\n") {
		line, indented := strings.CutPrefix(line, "    ")
		command, begins := strings.CutPrefix(line, "$ ")
		switch {
		case !indented:
		case begins:
			all = append(all, excerpt{command: command})
		case goesOn:
			all[len(all)-1].command += "\n" + line
		case len(all) > 0 && line != "":
			all[len(all)-1].want = append(all[len(all)-1].want, line)
		}
		goesOn = (begins || goesOn) && (strings.HasSuffix(line, "\\") || strings.HasSuffix(line, "&&"))
	}
	return all
}

// excerpt is a command in a document, with the output that the document shows.
type excerpt struct {
	command string
	want    []string
}

// described reports whether the output of a command is the same on every machine.
func (s excerpt) described() bool {
	return strings.HasPrefix(s.command, "bin/millrace schedule") || strings.Contains(s.command, " --cluster ")
}

// alike compares a line with the shown one, and tolerates what depends on the machine. A loss may differ by 5 % or by
// 0.03, whichever is more. An accuracy may differ by 2 points, and a count of test samples by 2 % of all. Times and
// speeds may be anything.
func alike(got, want string) bool {
	a, b := strings.Fields(got), strings.Fields(want)
	if len(a) != len(b) {
		return false
	}
	behind, of := "", 0.
	for i := range b {
		x, isNumber := number(a[i])
		y, wasNumber := number(b[i])
		switch far := math.Abs(x - y); {
		case isNumber != wasNumber, !isNumber && a[i] != b[i]:
			return false
		case behind == "loss" && far > max(0.05*y, 0.03), behind == "accuracy" && far > 2:
			return false
		case strings.HasPrefix(b[i], "("):
			of = far
		case behind == "of" && strings.HasSuffix(b[i], ")") && (x != y || of > 0.02*y):
			return false
		}
		behind = b[i]
	}
	return true
}

// number parses a word as a number, ignoring its unit, separators and surrounding characters.
func number(word string) (float64, bool) {
	word = strings.NewReplacer(",", "", "(", "", ")", "", "−", "-", "%", "").Replace(word)
	for _, unit := range []string{"ms", "µs", "s"} {
		word = strings.TrimSuffix(word, unit)
	}
	n, err := strconv.ParseFloat(word, 64)
	return n, err == nil
}

func TestAlike(t *testing.T) {
	const shown = "evaluation after 300 steps: loss 0.1413, accuracy 95.4 % (310 of 359)"
	for got, want := range map[string]bool{
		"evaluation after 300 steps: loss 0.1413, accuracy 95.4 % (310 of 359)":  true,
		"evaluation after 300 steps: loss 0.1700, accuracy 94.4 % (306 of 359)":  true,
		"evaluation after 300 steps: loss 0.1800, accuracy 95.4 % (310 of 359)":  false,
		"evaluation after 300 steps: loss 0.1413, accuracy 92.4 % (310 of 359)":  false,
		"evaluation after 300 steps: loss 0.1413, accuracy 95.4 % (300 of 359)":  false,
		"evaluation after 300 steps: loss 0.1413, accuracy 95.4 % (310 of 360)":  false,
		"evaluation after many steps: loss 0.1413, accuracy 95.4 % (310 of 359)": false,
	} {
		if alike(got, shown) != want {
			t.Errorf("%s", got)
		}
	}
	if !alike("  step time  1.2 ms  980 ms  −3 %", "  step time  77.7 ms  79 ms  +1.6 %") {
		t.Error("other times are not alike")
	}
}

// The README's commands, run in order in a clone, do what it says and print what it shows. Output for described
// hardware must be identical. The commands for PyTorch get further checks.
func TestTheReadmesTour(t *testing.T) {
	_, sh := clone(t)
	printed := map[string]string{}
	all := tour(t, "../../README.md")
	for _, s := range all {
		if strings.Contains(s.command, " serve ") || strings.Contains(s.command, "--live") {
			continue // runs until it is stopped
		}
		got := sh(s.command)
		printed[oneLine(s.command)] = got
		equal := func(a, b string) bool { return a == b }
		if !s.described() {
			equal = alike
		}
		if len(s.want) > 0 && !matches(strings.Split(strings.TrimSuffix(got, "\n"), "\n"), s.want, equal) {
			t.Errorf("%s\nprints\n%s\nthe README has\n%s", s.command, got, strings.Join(s.want, "\n"))
		}
	}
	if len(all) < 10 {
		t.Errorf("the README shows %d commands", len(all))
	}
	thereAndBack(t, sh, printed)
}

// The README's output for described hardware is identical to what the commands print. Unlike the tour this test
// needs no training.
func TestTheDocumentOfTheFirstMinutesShowsWhatIsPrinted(t *testing.T) {
	p := &clitest.Program{Dir: "../..", Native: "none", Cache: t.TempDir()}
	compared := 0
	for _, s := range tour(t, "../../README.md") {
		args, plain := strings.CutPrefix(oneLine(s.command), "bin/millrace ")
		if !plain || !s.described() || len(s.want) == 0 {
			continue
		}
		compared++
		got := p.Run(t, strings.Fields(args), false)
		if !matches(strings.Split(strings.TrimSuffix(got, "\n"), "\n"), s.want, func(a, b string) bool { return a == b }) {
			t.Errorf("%s\nprints\n%s\nthe README has\n%s", s.command, got, strings.Join(s.want, "\n"))
		}
	}
	if compared < 3 {
		t.Errorf("%d commands were compared", compared)
	}
}

// oneLine returns a command without its line breaks.
func oneLine(command string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(command, "\\\n", " ")), " ")
}

// Every command that a document names has its verb and its flags.
func TestTheDocumentsCommandsAreThere(t *testing.T) { clitest.CommandsAreThere(t, command) }

// The documents fit a screen. Lines have at most 120 columns, rows of tables excepted. Documents have at most 400
// lines, the two introductory ones 150, and ARCHITECTURE.md 440. The generated drawing of packages does not count.
func TestTheDocumentsKeepTheirSize(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	pages = append(pages, "../../README.md", "../../BENCHMARKS.md", "../../ARCHITECTURE.md", "../../CHANGELOG.md")
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		most := 400
		if base := filepath.Base(path); base == "README.md" || base == "BENCHMARKS.md" {
			most = 150
		}
		if filepath.Base(path) == "ARCHITECTURE.md" {
			most = 440 // it has a paragraph for each room, and a reason for each library
		}
		drawn, begins := 0, len(lines)
		if before, rest, found := strings.Cut(string(text), "<!-- drawn by"); found {
			drawing, _, _ := strings.Cut(rest, "<!-- end of the drawing -->")
			drawn, begins = strings.Count(drawing, "\n"), strings.Count(before, "\n")
		}
		if n := len(lines) - drawn; n > most {
			t.Errorf("%s has %d lines; %d at most", path, n, most)
		}
		for i, line := range lines {
			free := strings.HasPrefix(line, "|") || i >= begins && i < begins+drawn // tables and drawings cannot wrap
			if n := utf8.RuneCountInString(line); n > 120 && !free {
				t.Errorf("%s:%d has %d columns; 120 at most", path, i+1, n)
			}
		}
	}
}

// The examples of a job and of a cluster are valid, and --workers takes the cluster's first devices.
func TestTheExamplesAreRead(t *testing.T) {
	p := &clitest.Program{Dir: "../..", Native: "none", Cache: t.TempDir()}
	for args, note := range map[string]string{
		"plan --model mlp --cluster examples/two-nodes.yaml": "",
		"plan --job examples/demo.yaml --workers 2 --stages 2 --cluster examples/two-nodes.yaml": "millrace: the first 2 " +
			"of the 8 devices of two-nodes, as --workers asks\n",
	} {
		if out := p.Run(t, strings.Fields(args), true); out != note {
			t.Errorf("millrace %s: %q, want %q", args, out, note)
		}
	}
}
