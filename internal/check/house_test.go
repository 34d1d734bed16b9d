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

// rule says which rooms of the module a room may import, and what of the standard library and of single packages it
// must not, with the reason that a reader of the failure needs. A name is a package; with /... it is all packages below
// one. Of several rules that fit a package its own holds, or else the longest name.
//
// The table is the drawing of the house from the ground up: a rule may allow only rooms that stand before it,
// so that no arrow goes upwards and none closes a circle. Everybody may import internal, and a package those
// of its own rule.
type rule struct {
	room string
	may  []string
	not  []string
	why  string
}

var rules = []rule{
	{"internal/...", nil, nil, "what all rooms share knows no room"},
	{"native", nil, nil, "the sources of the shim know no Go"},
	{"model", nil, []string{"net"}, "a model is a description: it knows no tensors and nobody downstream"},
	{"model/aten", nil, []string{"net", "os/exec"}, "a traced graph is data: it knows no PyTorch and nobody downstream"},
	{"model/aten/rules", []string{"model/aten"}, []string{"net", "os"},
		"rules on a graph as data: they read no files and compute no tensors"},
	{"model/aten/fuse", []string{"model/aten", "model/aten/rules"}, []string{"net", "os"},
		"it puts operators in place of others, and computes masks alone"},
	{"model/aten/...", []string{"model/aten"}, []string{"net", "os/exec"}, "readers yield the graph as data"},
	{"model/imported", []string{"model", "model/aten", "model/aten/...", "model/aten/fuse", "model/aten/rules"},
		[]string{"net", "os/exec"},
		"it makes descriptions of networks: it computes nothing"},
	{"model/pretrained", []string{"model"}, []string{"net", "os/exec"},
		"first values are bytes of files: it knows no tensors and nobody downstream"},
	{"cluster", nil, []string{"net"}, "a cluster is hardware: it does not know who launched anything"},
	{"trace/...", nil, nil, "sim and run both write a Timeline, so it can know neither"},
	{"data/arrays", nil, []string{"net"}, "arrays are read from files: it knows no batches"},
	{"data/tokens", nil, []string{"net", "os"}, "a text becomes numbers: it reads no files and knows no batches"},
	{"data", []string{"data/arrays", "data/tokens"}, nil, "data yields batches and knows nobody"},
	{"wire/...", nil, nil, "the wire moves bytes and does not know what they mean"},
	{"launch", nil, []string{"net/http", "os/exec"}, "who a process is follows from its environment alone"},
	{"launch/rendezvous", nil, nil, "processes meet whatever they are to do: it knows connections and what is compared"},
	{"launch/start", []string{"launch"}, nil, "it starts and watches processes, whatever they run"},
	{"engine/...", []string{"native"}, nil, "the door to tensors knows no plans"},
	{"nn", []string{"engine/...", "model", "model/aten", "model/aten/rules"}, nil,
		"layers compute; which micro-batch runs when is not theirs to know"},
	{"profile/...", []string{"model", "cluster"}, nil,
		"a profile is costs: it is measured through the Timer interface and knows no plan"},
	{"plan", []string{"cluster", "profile/..."}, nil,
		"a plan is values: the order of instructions and the simulator are tune's business"},
	{"sim/memory", []string{"model", "cluster", "profile/...", "plan"}, []string{"time"},
		"what a stage holds is said of values alone, so that planners may ask it"},
	{"plan/...", []string{"model", "cluster", "profile/...", "plan", "sim/memory"}, nil,
		"a planner uses closed forms: it knows neither the order of instructions nor the simulator"},
	{"schedule", []string{"plan"}, []string{"net", "time"}, "schedules know no clocks and no tensors"},
	{"schedule/...", []string{"plan", "schedule"}, []string{"net", "time"},
		"schedules know no clocks, no tensors and nobody who plays them"},
	{"sim", []string{"cluster", "profile/...", "plan", "schedule", "schedule/...", "trace/...", "sim/memory"},
		[]string{"net", "os/exec"}, "the simulator is replayable: no engine, no network"},
	{"tune/...", []string{"model", "cluster", "profile/...", "plan", "plan/...", "schedule", "schedule/...",
		"sim", "sim/memory",
		"trace/..."}, nil, "tune asks plan, schedule and sim, never the inside of run"},
	{"stage/optim", []string{"engine/..."}, nil, "an optimizer knows parameters and gradients alone"},
	{"stage", []string{"data", "engine/...", "model", "nn", "plan", "stage/optim"}, []string{"net"},
		"a stage is tensors of one worker: it knows no order and no other stage"},
	{"stage/update", []string{"engine/...", "plan", "stage", "stage/optim"}, []string{"net", "time"},
		"an updater changes a stage's tensors: it knows no order, and a stage no updater"},
	{"run/control", []string{"plan", "schedule", "schedule/...", "trace/..."}, []string{"net"},
		"processes agree in messages: it knows no tensors, and no network of its own"},
	{"launch/setup", []string{"run/control"}, []string{"net"},
		"processes ask each other over the links that the run then has: it knows nothing of what is asked"},
	{"run/place", nil, []string{"net"}, "threads and processors are the operating system's: they hold for any work"},
	{"measure", []string{"data", "engine/...", "model", "nn", "profile/...", "plan", "stage/optim", "stage",
		"stage/update", "run/place",
		"trace/...", "wire/..."}, nil, "measuring knows no order of instructions: what trains a pipeline is given to it"},
	{"measure/links", []string{"wire/..."}, []string{"net"}, "a link is measured over any carrier"},
	{"run/...", []string{"data", "engine/...", "model", "nn", "plan", "schedule", "schedule/...", "stage/optim", "stage",
		"stage/update",
		"measure", "run/place", "run/control", "trace/...", "wire/..."}, nil,
		"run executes a Program: predicting and drawing are others'"},
	{"report/picture", []string{"trace/..."}, nil, "a drawing on a terminal is made of a Timeline alone"},
	{"report", []string{"plan", "trace/...", "report/picture"}, nil, "a report is drawn from values that were saved"},
	{"report/pagetest", []string{"trace/..."}, nil, "a page is held against itself and a Timeline, whoever has drawn it"},
	{"report/metrics", nil, nil, "it writes down plain values, whoever has them"},
	{"report/folder", []string{"plan", "profile/...", "report", "report/metrics", "trace/..."}, nil,
		"what a run has left is read from its files alone"},
	{"report/live", []string{"profile/...", "plan", "trace/...", "report", "report/folder", "report/metrics"}, nil,
		"a page is drawn from the files of runs: it starts none, and knows none that goes on in this process"},
	{"launch/manifest", []string{"launch", "cluster", "plan"}, []string{"net", "os", "os/exec"},
		"a manifest is a text that follows from what is asked: it asks no host, cluster or clock"},
	{"job", []string{"model", "cluster", "plan", "stage/optim"}, nil,
		"a job is what a user asks for: it knows no flags and does nothing"},
	{"lab/race", nil, nil, "it measures processes that speak a line protocol, whatever they train"},
	{"lab/slow", []string{"model", "cluster", "report", "lab/race"}, nil,
		"it makes hosts and counts what was measured there: what trains in them is given to it"},
	{"lab/curves", []string{"model", "cluster", "profile/...", "plan", "plan/...", "schedule", "schedule/...", "job",
		"stage/optim", "trace/...", "tune/...",
		"report"}, []string{"run", "engine"}, "it counts what trainings and Timelines say, and starts none"},
	{"lab/versus", []string{"report", "trace/..."}, nil, "it compares programs by what both print"},
	{"lab/p2p", []string{"wire/...", "lab/race", "lab/versus", "report", "trace/..."}, nil,
		"it measures what messages take, and knows nothing of what they carry"},
	{"lab/pictures", nil, nil, "it runs the program from outside and looks at its pages"},
	{"lab/left", nil, nil, "it runs commands, and replays what they say of their progress"},
	{"lab/livepage", []string{"plan", "trace/...", "report", "report/folder", "report/live", "report/metrics"}, nil,
		"it looks at pages of a run that it writes down itself: nothing is trained"},
	{"lab/defaults", []string{"model", "report", "report/folder"}, nil,
		"it trains through the command line, and reads what is left"},
	{"lab/quick", []string{"plan"}, nil, "it measures and plans through the command line, and reads what is left"},
	{"lab/rooms", nil, nil, "it draws what the go command lists"},
	{"lab/attack", []string{"run/..."}, nil,
		"it attacks the program from outside, and opens the checkpoints that are left"},
	{"lab/faults", []string{"launch", "run/...", "lab/slow"}, nil,
		"it loses processes of the program from outside, and opens the checkpoints that are left"},
	{"lab/runs", []string{"lab/slow"}, nil, "it measures through the command line, on hosts of lab/slow, and reads what " +
		"is left by itself"},
	{"lab/reproduce/...", []string{"model", "cluster", "profile/...", "plan", "plan/...", "schedule", "schedule/...",
		"sim", "sim/memory",
		"tune/..."}, []string{"net"}, "papers are reproduced from descriptions: planners and the simulator answer, nothing " +
		"is trained"},
	{"lab/papers", []string{"lab/reproduce/...", "report"}, []string{"net"}, "the page is made of what experiments have " +
		"left: it runs none"},
	{"lab/bench", []string{"model", "cluster", "profile/...", "plan", "plan/...", "schedule", "schedule/...",
		"trace/...", "run/...",
		"report", "lab/race", "lab/versus"}, nil, "it counts what was measured, and starts no training"},
	{"cmd/internal/...", []string{"..."}, nil, "what the programs share knows neither of them"},
	{"cmd/millrace/...", []string{"...", "cmd/internal/..."}, []string{"lab/..."},
		"one binary does not need the other's packages"},
	{"cmd/millrace-lab/...", []string{"...", "cmd/internal/..."}, nil, "one binary does not need the other's packages"},
}

// ruleOf is the rule of a package, by its position; -1 where it has none.
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

// covers says whether a name of the table is that of a package.
func covers(name, path string) bool {
	below, whole := strings.CutSuffix(name, "...")
	return name == path || whole && (strings.HasPrefix(path, below) || path+"/" == below)
}

// imported is what a package imports; paths of the module without its prefix.
type imported struct {
	ImportPath string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

// packages is every package of the module, by its path in it.
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

// Every import is one that the table allows.
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

// No rule allows a room that stands behind it: nothing goes upwards and nothing in a circle.
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

// A browser's library is for tests and pictures alone.
func TestNoProgramThatIsGivenAwayHasABrowser(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "chromedp") {
		t.Error("a program below cmd imports chromedp, through internal/browser: leave it to tests and to programs of lab")
	}
}

// The table refuses what it is there to refuse.
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

// TestPanicsOfEveryGoroutineAreCaught holds all rooms to package crash: a goroutine is begun by it, or
// with what it made, so that no panic ends the process without a word that a user understands. Attacks are ours alone.
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

// starts says whether a call has its last argument run on a goroutine: wait.Go(f), time.AfterFunc(d, f).
func starts(c *ast.CallExpr) bool {
	called, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, _ := called.X.(*ast.Ident)
	return len(c.Args) > 0 && (called.Sel.Name == "AfterFunc" ||
		called.Sel.Name == "Go" && (of == nil || of.Name != "crash"))
}

// isCaught says whether an expression is crash.Caught(f).
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

// TestSimReadsNoClock is the grep beside the import rule: a simulator that
// looks at the wall clock cannot give the same bytes twice.
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

// TestFilesHaveAtMost400LinesOf120Columns: a tab is one. What a raw string of a Go file quotes is somebody else's.
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

// rawLines is the lines of a Go file that are of raw strings.
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

// TestPackagesHaveAtMost20Files, those of tests apart: beyond that nobody finds what is where.
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
