package papers

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

const root = "../.."

// The list has every table and figure of each paper once, as counted in the paper's text. Other entries are sections.
func TestAllTablesAndFiguresAreListed(t *testing.T) {
	figures, err := Figures()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for _, f := range figures {
		listed[f.Paper+", "+f.Name]++
	}
	roman := []string{"I", "II", "III", "IV", "V", "VI"}
	for _, p := range []struct {
		name            string
		tables, figures int
	}{{"PipeDream", 3, 18}, {"DAPPLE", 7, 12}, {"BaPipe", 6, 6}, {"AvgPipe", 0, 19}} {
		want := []string{}
		for i := range p.tables {
			number := strconv.Itoa(i + 1)
			if p.name == "BaPipe" {
				number = roman[i]
			}
			want = append(want, p.name+", Table "+number)
		}
		for i := range p.figures {
			want = append(want, p.name+", Figure "+strconv.Itoa(i+1))
		}
		for _, w := range want {
			if listed[w] != 1 {
				t.Errorf("%s is listed %d times", w, listed[w])
			}
			delete(listed, w)
		}
	}
	for name := range listed {
		if !strings.Contains(name, ", Section ") {
			t.Errorf("%s is no table, figure or section", name)
		}
	}
}

// An experiment that no figure names, a figure with an unknown experiment, and a figure without content are refused.
func TestWhatIsNotListedIsRefused(t *testing.T) {
	figures := []Figure{{Paper: "P", Name: "Figure 1", Experiments: []string{"p-fig1"}},
		{Paper: "P", Name: "Figure 2", Draws: "millrace schedule 1f1b"}}
	if err := covered(figures, []string{"p-fig1"}); err != nil {
		t.Error(err)
	}
	for want, experiments := range map[string][]string{
		`experiment "p-fig3" is of no table or figure`: {"p-fig1", "p-fig3"},
		`P, Figure 1: there is no experiment "p-fig1"`: {},
	} {
		if err := covered(figures, experiments); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %s", experiments, err, want)
		}
	}
	if err := covered([]Figure{{Paper: "P", Name: "Figure 3"}}, nil); err == nil {
		t.Error("a figure without anything is taken")
	}
}

// docs/papers.md and its plots are what the command makes from the lists and the results.
func TestThePageIsWhatItsInputsMake(t *testing.T) {
	files, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its inputs make (%v): millrace-lab papers", path, err)
		}
	}
	kept, err := os.ReadDir(filepath.Join(root, plotsFolder))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range kept {
		if files[plotsFolder+"/"+f.Name()] == nil {
			t.Errorf("%s/%s is the plot of nothing", plotsFolder, f.Name())
		}
	}
	// every experiment has a plot and its numbers on the page
	for _, e := range table.Experiments() {
		if !e.OfThePapers() {
			continue
		}
		if files[plotPath(e.Name, 0)] == nil || !bytes.Contains(files[PagePath], []byte("\n### "+e.Name+"\n")) {
			t.Errorf("%s has no plot, or no part of the page", e.Name)
		}
	}
}

// The results contain neither this machine's name nor a path in the folders of a machine.
func TestResultsNameNoMachine(t *testing.T) {
	host, _ := os.Hostname()
	err := filepath.WalkDir(filepath.Join(root, ResultsFolder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if regexp.MustCompile(`"[^"]*(/home|/root|/tmp|/work)/`).Match(text) || len(host) > 3 && bytes.Contains(text, []byte(host)) {
			t.Errorf("%s names a machine or a path of one", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// functions returns the functions that a folder's test files declare.
func functions(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// Every test that a mechanism names exists. Each working mechanism has a test, and every other one says what is
// missing.
func TestMechanismsHaveTheirTests(t *testing.T) {
	mechanisms, err := Mechanisms()
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, m := range mechanisms {
		if !slices.Contains([]string{"works", "partly", "absent"}, m.State) {
			t.Errorf("%s: state %q; it is works, partly or absent", m.Name, m.State)
		}
		if (m.State == "works") != (m.Missing == "") {
			t.Errorf("%s %s; missing: %q", m.Name, m.State, m.Missing)
		}
		if m.State == "works" && len(m.Tests) == 0 {
			t.Errorf("%s works, and no test holds it", m.Name)
		}
		for _, name := range m.Tests {
			i := strings.LastIndex(name, ".")
			folder, function := name[:i], name[i+1:]
			if declared[folder] == nil {
				declared[folder] = functions(t, folder)
			}
			if !slices.Contains(declared[folder], function) {
				t.Errorf("%s: there is no test %s in %s", m.Name, function, folder)
			}
		}
	}
}
