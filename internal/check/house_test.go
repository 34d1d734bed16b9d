package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/millrace-ml/millrace/"

// rule bans packages from everything a room depends on, with the reason that a
// reader of the failure needs. A room with /... is all packages below one.
type rule struct {
	room   string
	banned []string
	why    string
}

var rules = []rule{
	{"model", []string{"engine", "nn", "profile", "plan", "schedule", "sim", "run", "net"}, "a model is a description: it knows no tensors and nobody downstream"},
	{"cluster", []string{"launch", "profile", "plan", "schedule", "sim", "run", "engine", "net"}, "a cluster is hardware: it does not know who launched anything"},
	{"profile", []string{"plan", "schedule", "sim", "run", "engine", "nn"}, "a profile is costs: it is measured through the Timer interface and knows no plan"},
	{"plan", []string{"schedule", "sim", "run", "engine", "nn", "tune"}, "planners use closed forms: the order of instructions and the simulator are tune's business"},
	{"plan/...", []string{"schedule", "sim", "run", "engine", "nn", "tune"}, "a planner knows neither the order of instructions nor the simulator"},
	{"schedule", []string{"sim", "run", "engine", "nn", "wire", "trace", "net", "time"}, "schedules know no clocks and no tensors"},
	{"schedule/...", []string{"sim", "run", "engine", "nn", "wire", "trace", "net"}, "schedules know no tensors and nobody who plays them"},
	{"sim", []string{"engine", "nn", "run", "wire", "net", "os/exec"}, "the simulator is replayable: no engine, no network"},
	{"sim/memory", []string{"schedule", "sim", "trace", "time"}, "what a stage holds is said of values alone, so that planners may ask it"},
	{"engine", []string{"model", "plan", "schedule", "sim", "run"}, "the door to tensors knows no plans"},
	{"engine/ref", []string{"model", "plan", "schedule", "sim", "run", "engine/torch"}, "an engine knows no plans"},
	{"engine/torch", []string{"model", "plan", "schedule", "sim", "run"}, "an engine knows no plans"},
	{"nn", []string{"plan", "schedule", "sim", "run", "wire", "profile"}, "layers compute; which micro-batch runs when is not theirs to know"},
	{"wire", []string{"engine", "nn", "model", "plan", "schedule", "run"}, "the wire moves bytes and does not know what they mean"},
	{"stage", []string{"schedule", "sim", "run", "wire", "net"}, "a stage is tensors of one worker: it knows no order and no other stage"},
	{"stage/optim", []string{"stage", "model", "plan", "schedule", "run"}, "an optimizer knows parameters and gradients alone"},
	{"measure", []string{"schedule", "sim", "run", "tune", "report"}, "measuring knows no order of instructions: what trains a pipeline is given to it"},
	{"run", []string{"sim", "tune", "report", "cmd"}, "run executes a Program: predicting and drawing are others'"},
	{"run/record", []string{"run", "engine", "net"}, "a record is of instructions and times: it runs nothing"},
	{"run/place", []string{"run", "engine", "schedule", "plan", "net"}, "threads and processors are the operating system's: they hold for any work"},
	{"trace", []string{"schedule", "sim", "run", "plan", "model", "engine"}, "sim and run both write a Timeline, so it can know neither"},
	{"report", []string{"run", "sim", "engine", "nn", "tune"}, "a report is drawn from values that were saved"},
	{"tune", []string{"run", "engine", "nn", "wire"}, "tune asks plan, schedule and sim, never the inside of run"},
	{"tune/...", []string{"run", "engine", "nn", "wire"}, "tune asks plan, schedule and sim, never the inside of run"},
	{"tune/predict", []string{"tune", "tune/avgpipe", "tune/contest"}, "a prediction is of one plan: who asks for many is above it"},
	{"tune/contest", []string{"tune", "tune/avgpipe"}, "a contest ranks what there is: it searches nothing"},
	{"lab/reproduce", []string{"run", "engine", "nn", "wire", "net"}, "papers are reproduced from descriptions: planners and the simulator answer, nothing is trained"},
	{"lab/attack", []string{"schedule", "sim", "run", "engine/torch", "nn", "tune"},
		"it attacks the program from outside, and opens the checkpoints that are left"},
	{"lab/runs", []string{"model", "plan", "schedule", "sim", "run", "run/checkpoint", "engine", "nn"},
		"it measures through the command line, and reads what is left by itself"},
	{"lab/race", []string{"model", "plan", "schedule", "sim", "run", "engine"}, "it measures processes that speak a line protocol, whatever they train"},
	{"lab/curves", []string{"plan", "sim", "run", "engine"}, "it counts what trainings and Timelines say"},
	{"lab/versus", []string{"model", "plan", "schedule", "sim", "run", "engine"}, "it compares programs by what both print"},
	{"data", []string{"engine", "model", "plan", "schedule", "run"}, "data yields batches and knows nobody"},
}

// imported is what a package imports, and what it and all these reach; those of the module without its prefix.
type imported struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// packages is every package of the module, by its path in it.
func packages(t *testing.T) map[string]imported {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,Deps", module+"...").Output()
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
		for _, list := range [][]string{p.Imports, p.Deps} {
			for i := range list {
				list[i] = strings.TrimPrefix(list[i], module)
			}
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

func TestDataFlowsOneWay(t *testing.T) {
	all := packages(t)
	for _, r := range rules {
		found := false
		for room, p := range all {
			below, whole := strings.CutSuffix(r.room, "...")
			if room != r.room && !(whole && strings.HasPrefix(room, below)) {
				continue
			}
			found = true
			for _, b := range r.banned {
				if slices.Contains(p.Imports, b) || (!isStandard(b) && slices.Contains(p.Deps, b)) {
					t.Errorf("%s reaches %s: %s (ARCHITECTURE.md)", room, b, r.why)
				}
			}
		}
		if !found {
			t.Errorf("there is a rule for %s, and no such room", r.room)
		}
	}
}

// isStandard tells packages of the standard library, which are banned from a
// room's own imports only: encoding/json reaches time for reasons of its own.
func isStandard(path string) bool {
	return slices.Contains([]string{"net", "time", "os/exec"}, path)
}

// TestEveryRoomHasARule keeps the table above complete.
func TestEveryRoomHasARule(t *testing.T) {
	for room, p := range packages(t) {
		top, _, _ := strings.Cut(room, "/")
		if slices.Contains([]string{"cmd", "internal", "native", "job"}, top) || len(p.GoFiles) == 0 {
			continue
		}
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.room == top || r.room == room }) {
			t.Errorf("%s has no rule about what it may import: add one to this table and a paragraph to ARCHITECTURE.md", room)
		}
	}
}

// TestPanicsOfEveryGoroutineAreCaught holds all rooms to package crash: a goroutine is begun by it, or
// with what it made, so that no panic ends the process without a word that a user understands. Attacks and runs of
// the list are ours alone.
func TestPanicsOfEveryGoroutineAreCaught(t *testing.T) {
	files, err := filepath.Glob("../../*/*.go")
	for _, deeper := range []string{"../../*/*/*.go", "../../*/*/*/*.go"} {
		more, e := filepath.Glob(deeper)
		files, err = append(files, more...), errors.Join(err, e)
	}
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files of Go (%v)", len(files), err)
	}
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "internal/crash") ||
			strings.HasPrefix(file, "../../lab/attack/") || strings.HasPrefix(file, "../../lab/runs/") {
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
		out, err := exec.Command("grep", "-rn", "--include=*.go", "--exclude=*_test.go", "time\\.Now\\|time\\.Since", "../../"+room).Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if len(out) > 0 {
			t.Errorf("%s reads the wall clock:\n%s", room, out)
		}
	}
}
