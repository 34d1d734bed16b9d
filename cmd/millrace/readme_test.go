package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// matches says whether lines are those wanted, where "..." stands for any lines.
func matches(got, want []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] != "..." {
		return len(got) > 0 && got[0] == want[0] && matches(got[1:], want[1:])
	}
	return matches(got, want[1:]) || len(got) > 0 && matches(got[1:], want)
}

// What the README shows of schedules and of plans for a described cluster is what is printed
// today; what it shows of times depends on the machine.
func TestTheReadmeShowsWhatIsPrinted(t *testing.T) {
	p := &clitest.Program{Dir: "../..", Native: "none", Cache: t.TempDir()}
	checked := 0
	for _, s := range clitest.ShownIn(t, "../../README.md", "millrace") {
		command := strings.Join(s.Args, " ")
		described := s.Args[0] == "schedule" || strings.Contains(command, " --cluster ")
		if !described || strings.Contains(command, " > ") {
			continue
		}
		got := p.Run(t, s.Args, false)
		if !matches(strings.Split(strings.TrimSuffix(got, "\n"), "\n"), s.Want) {
			t.Errorf("millrace %s prints\n%s\nthe README has\n%s", command, got, strings.Join(s.Want, "\n"))
		}
		checked++
	}
	if checked < 3 {
		t.Errorf("the README shows %d schedules and plans", checked)
	}
}

// Every command that a document names has its verb and its flags.
func TestTheDocumentsCommandsAreThere(t *testing.T) { clitest.CommandsAreThere(t, command) }

// The documents fit a screen: lines of at most 120 columns, the two that are read first at most 150 of them. The
// drawing of the packages, which a command makes, is not counted.
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
		drawn := 0
		if _, rest, found := strings.Cut(string(text), "<!-- drawn by"); found {
			drawing, _, _ := strings.Cut(rest, "<!-- end of the drawing -->")
			drawn = strings.Count(drawing, "\n")
		}
		if n := len(lines) - drawn; n > most {
			t.Errorf("%s has %d lines; %d at most", path, n, most)
		}
		for i, line := range lines {
			if n := utf8.RuneCountInString(line); n > 120 {
				t.Errorf("%s:%d has %d columns; 120 at most", path, i+1, n)
			}
		}
	}
}

// Every example of a job and of a cluster that is shipped is read, and --workers takes the cluster's
// first devices.
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
