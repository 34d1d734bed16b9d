package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A type may have at most this many methods and fields. A larger type has parts with their own invariants, which should
// be types of their own. An embedded field counts as one field.
const (
	mostMethods = 25
	mostFields  = 20
)

// largeTypes lists the types that may be larger, each with the reason. The type's doc comment must contain the reason,
// word for word.
var largeTypes = map[string]string{
	"cmd/millrace/internal/training.training": "Its methods are the steps of train, from the flags to what the run " +
		"leaves. Most of these steps concern several of its parts.",
	"run.leader": "It has a method for each step of a run and each message of a process. Most of these methods concern " +
		"several parts of the leader.",
	"cluster.Cluster":     "Its methods answer questions about the cluster, or return a changed copy.",
	"engine/ref.Device":   "Its methods are those of engine.Device, which is all that a worker needs of tensors.",
	"engine/torch.Device": "Its methods are those of engine.Device.",
	"nn.ops":              "ops has a method for each operator, and for each formula that layers share.",
	"plan.Plan": "Its fields are those of a plan file. Its methods answer questions about the plan, or return it in " +
		"other forms.",
	"profile.Cost":              "Its fields are those of a profile's file.",
	"profile.Profile":           "Its methods answer questions about the costs, or return a changed profile.",
	"report.pageView":           "The template uses its fields by name.",
	"report/live.summary":       "Its fields are what the page's script reads of a row.",
	"report/metrics.Prometheus": "It has a field for each metric.",
	"run/checkpoint.Manifest":   "Its fields are those of the manifest's file.",
	"run/control.Leader": "The Messages that its methods return are for every process. Other methods tell where the " +
		"processes stand.",
	"schedule.Program": "Its fields are those of a Program's file. Its methods answer questions about it; the package " +
		"comment lists them.",
	"schedule/machine.Local": "It has a method for each transition and each question of the package's contract",
	"sim.state": "It has a method for each thing that a worker, a device or a message does, most of which concern " +
		"several of its parts.",
	"sim/memory.Held": "There is a number for each reason why bytes are held, and for the peak of each instruction.",
	"trace.Timeline": "Its fields are those of a Timeline's file, and its methods check, cut or measure what " +
		"they record.",
}

// size holds a type's number of methods and fields, and its doc comment.
type size struct {
	methods, fields int
	doc             string
}

// TestTypesHaveAtMost25MethodsAnd20Fields ignores types in tests.
func TestTypesHaveAtMost25MethodsAnd20Fields(t *testing.T) {
	byFolder := map[string][]*ast.File{}
	set := token.NewFileSet()
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := strings.TrimPrefix(filepath.Dir(file), "../../")
		byFolder[dir] = append(byFolder[dir], parsed)
	}
	types := map[string]size{}
	for dir, files := range byFolder {
		for name, s := range sizes(files) {
			types[dir+"."+name] = s
		}
	}
	for _, wrong := range tooLarge(types, largeTypes) {
		t.Error(wrong)
	}
}

// tooLarge returns messages for types that are too large without a reason, and for reasons without such a type.
func tooLarge(types map[string]size, reasons map[string]string) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(types)) {
		s, reason := types[name], reasons[name]
		large := s.methods > mostMethods || s.fields > mostFields
		switch {
		case !large && reason != "":
			wrong = append(wrong, name+" is no larger than others any more: take it out of largeTypes")
		case !large:
		case reason == "":
			wrong = append(wrong, name+" has more than 25 methods or 20 fields: give its parts names, or add the reason "+
				"to its doc comment and to largeTypes")
		case !strings.Contains(strings.Join(strings.Fields(s.doc), " "), reason):
			wrong = append(wrong, name+" may be large for a reason that its doc comment does not give: "+reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if _, is := types[name]; !is {
			wrong = append(wrong, "largeTypes allows "+name+", and there is no such type")
		}
	}
	return wrong
}

// sizes returns the sizes of the types of a package, by name. Of an interface it counts the methods in its declaration.
// An embedded interface counts as one method.
func sizes(files []*ast.File) map[string]size {
	all, methods := map[string]size{}, map[string]int{}
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[receiver(d.Recv.List[0].Type)]++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					of, is := spec.(*ast.TypeSpec)
					if !is {
						continue
					}
					s := size{doc: of.Doc.Text()}
					if s.doc == "" {
						s.doc = d.Doc.Text()
					}
					switch of := of.Type.(type) {
					case *ast.StructType:
						s.fields = of.Fields.NumFields()
					case *ast.InterfaceType:
						s.methods = of.Methods.NumFields()
					}
					all[of.Name.Name] = s
				}
			}
		}
	}
	for name, n := range methods {
		if s, is := all[name]; is {
			s.methods += n
			all[name] = s
		}
	}
	return all
}

func TestTypesThatAreTooLargeAreRefused(t *testing.T) {
	const text = `package p

// T is a value.
// Its methods
// are pure.
type T[K any] struct {
	a, b int
	Embedded
}

type (
	// I is an interface.
	I interface { A(); B() }
	n int
)

func (t *T[K]) A() {}
func (t T) B()     {}
func (n) c()       {}
`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]size{"T": {2, 3, "T is a value.\nIts methods\nare pure.\n"}, "I": {2, 0, "I is an interface.\n"},
		"n": {1, 0, ""}}
	if got := sizes([]*ast.File{file}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	const pure = "Its methods are pure."
	for name, c := range map[string]struct {
		of     size
		reason string
		wrong  string
	}{
		"small":           {of: size{25, 20, ""}},
		"methods":         {of: size{26, 20, "It is."}, wrong: "more than 25 methods"},
		"fields":          {of: size{25, 21, "It is."}, wrong: "or 20 fields"},
		"with a reason":   {of: size{26, 21, "It is.\nIts methods\nare pure.\n"}, reason: pure},
		"untold":          {of: size{26, 21, "It is."}, reason: pure, wrong: "its doc comment does not give: " + pure},
		"reason outlived": {of: size{5, 5, pure}, reason: pure, wrong: "no larger than others any more"},
	} {
		reasons := map[string]string{}
		if c.reason != "" {
			reasons["p.T"] = c.reason
		}
		got := strings.Join(tooLarge(map[string]size{"p.T": c.of}, reasons), "\n")
		if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want something about %q", name, got, c.wrong)
		}
	}
	if got := tooLarge(nil, map[string]string{"p.Gone": pure}); len(got) != 1 {
		t.Errorf("a reason of no type is let be: %q", got)
	}
}
