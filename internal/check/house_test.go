package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/millrace-ml/millrace/"

// ruleOf returns the index of a package's rule; -1 if it has none.
func ruleOf(path string) int {
	found := -1
	for i, r := range rules {
		if r.room == path {
			return i
		}
		if covers(r.room, path) && (found < 0 || len(r.room) > len(rules[found].room)) {
			found = i
		}
	}
	return found
}

// covers reports whether a name in the table matches a package.
func covers(name, path string) bool {
	below, whole := strings.CutSuffix(name, "...")
	return name == path || whole && (strings.HasPrefix(path, below) || path+"/" == below)
}

// imported describes a package and its imports, with paths relative to the module.
type imported struct {
	ImportPath string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

// packages returns every package of the module, by its path within the module.
func packages(t *testing.T) map[string]imported {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,GoFiles,CgoFiles,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]imported{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p imported
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for i := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(p.Imports[i], module)
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

// TestDataFlowsOneWay compares every import with the table.
func TestDataFlowsOneWay(t *testing.T) {
	used := map[int]bool{}
	for path, p := range packages(t) {
		if len(p.GoFiles)+len(p.CgoFiles) == 0 {
			continue
		}
		at := ruleOf(path)
		if at < 0 {
			t.Errorf("%s has no rule about what it may import: add one to this table and a paragraph to ARCHITECTURE.md", path)
			continue
		}
		used[at] = true
		r := rules[at]
		for _, i := range p.Imports {
			to := ruleOf(i)
			switch inModule := strings.HasPrefix(i, "internal/") || to >= 0; {
			case slices.ContainsFunc(r.not, func(name string) bool { return covers(name, i) }):
				t.Errorf("%s imports %s: %s (ARCHITECTURE.md)", path, i, r.why)
			case !inModule || to == at || strings.HasPrefix(i, "internal/"):
			case !slices.ContainsFunc(r.may, func(name string) bool { return name == "..." || name == rules[to].room }):
				t.Errorf("%s imports %s, and may import %v alone: %s (ARCHITECTURE.md)", path, i, r.may, r.why)
			}
		}
	}
	for i, r := range rules {
		if !used[i] {
			t.Errorf("there is a rule for %s, and no such room", r.room)
		}
	}
}

// TestTheTableHasNoArrowUpwards: apart from "...", a rule may only allow packages with an earlier rule, so that there
// are no cycles.
func TestTheTableHasNoArrowUpwards(t *testing.T) {
	for i, r := range rules {
		for _, name := range r.may {
			if name == "..." {
				continue
			}
			at := slices.IndexFunc(rules, func(other rule) bool { return other.room == name })
			if at < 0 || at >= i {
				t.Errorf("%s may import %s, which does not stand before it in the table", r.room, name)
			}
		}
	}
}

// TestNoProgramThatIsGivenAwayHasABrowser: no program below cmd contains the browser library, which is for tests and
// the documentation's pictures.
func TestNoProgramThatIsGivenAwayHasABrowser(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "chromedp") {
		t.Error("a program below cmd imports chromedp, through internal/browser: leave it to tests and to programs of lab")
	}
}

// TestTheTableRefuses checks that the table refuses some forbidden imports.
func TestTheTableRefuses(t *testing.T) {
	for _, c := range []struct {
		from, to string
		may      bool
	}{
		{"plan/bapipe", "sim/memory", true}, {"plan/bapipe", "sim", false}, {"plan", "sim/memory", false},
		{"sim", "engine", false}, {"tune/contest", "run", false}, {"run", "sim", false}, {"measure", "run/place", true},
		{"measure", "run", false}, {"stage", "schedule", false}, {"wire/pipe", "wire", true}, {"model", "plan", false},
		{"cmd/internal/cli", "cmd/millrace-lab", false}, {"run/record", "run", true},
	} {
		from, to := rules[ruleOf(c.from)], rules[ruleOf(c.to)]
		may := from.room == to.room || slices.Contains(from.may, to.room) || slices.Contains(from.may, "...") &&
			!strings.HasPrefix(to.room, "cmd/")
		if may != c.may {
			t.Errorf("%s importing %s: %v, want %v", c.from, c.to, may, c.may)
		}
	}
}

// TestPanicsOfEveryGoroutineAreCaught: every goroutine must be started by package crash, or must run a function that
// crash.Caught returned. Then no panic ends the process without a message that a user understands. Tests, packages for
// tests, internal/crash and lab/attack are exempt.
func TestPanicsOfEveryGoroutineAreCaught(t *testing.T) {
	set := token.NewFileSet()
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test") ||
			strings.HasSuffix(filepath.Dir(file), "internal/crash") ||
			strings.HasPrefix(file, "../../lab/attack/") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a go statement; use crash.Go", set.Position(n.Pos()))
			case *ast.CallExpr:
				if starts(n) && !isCaught(n.Args[len(n.Args)-1]) {
					t.Errorf("%s: a goroutine whose panics nobody catches; give crash.Caught of its function", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// starts reports whether a call runs its last argument on a goroutine: wait.Go(f), time.AfterFunc(d, f).
func starts(c *ast.CallExpr) bool {
	called, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, _ := called.X.(*ast.Ident)
	return len(c.Args) > 0 && (called.Sel.Name == "AfterFunc" ||
		called.Sel.Name == "Go" && (of == nil || of.Name != "crash"))
}

// isCaught reports whether an expression is crash.Caught(f).
func isCaught(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := called.X.(*ast.Ident)
	return ok && of.Name == "crash" && called.Sel.Name == "Caught"
}

// TestSimReadsNoClock searches sim, schedule and plan for calls that read the clock. With such calls, the same input
// could produce different output.
func TestSimReadsNoClock(t *testing.T) {
	for _, room := range []string{"sim", "schedule", "plan"} {
		out, err := exec.Command("grep", "-rn", "--include=*.go", "--exclude=*_test.go", "time\\.Now\\|time\\.Since",
			"../../"+room).Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if len(out) > 0 {
			t.Errorf("%s reads the wall clock:\n%s", room, out)
		}
	}
}

// TestFilesHaveAtMost400LinesOf120Columns counts a tab as one column. It skips raw strings in Go files, which may
// quote foreign text.
func TestFilesHaveAtMost400LinesOf120Columns(t *testing.T) {
	for _, file := range sources(t, ".go", ".cpp", ".h", ".js", ".py", ".sh") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		quoted := rawLines(t, file, text)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 && !quoted[number] {
				t.Errorf("%s:%d has %d columns", file, number, n)
			}
		}
		if number > 400 {
			t.Errorf("%s has %d lines", file, number)
		}
	}
}

// rawLines returns the lines of a Go file that belong to raw strings.
func rawLines(t *testing.T, file string, text []byte) map[int]bool {
	quoted := map[int]bool{}
	if filepath.Ext(file) != ".go" {
		return quoted
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(s.Value, "`") {
			for at := set.Position(s.Pos()).Line; at <= set.Position(s.End()).Line; at++ {
				quoted[at] = true
			}
		}
		return true
	})
	return quoted
}

// TestPackagesHaveAtMost20Files does not count test files. In a package with more files, it is hard to find anything.
func TestPackagesHaveAtMost20Files(t *testing.T) {
	files := map[string]int{}
	for _, file := range sources(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") {
			files[filepath.Dir(file)]++
		}
	}
	for dir, n := range files {
		if n > 20 {
			t.Errorf("%s has %d files beside those of its tests; move a part of it into a package", dir, n)
		}
	}
}
