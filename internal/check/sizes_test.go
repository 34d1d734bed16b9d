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

// longest is the largest number of lines of statements that a function may have. In a longer function a reader forgets
// the beginning.
const longest = 80

// longFunctions lists functions that may be longer, with the reason why dividing them would make them harder to
// read.
var longFunctions = map[string]string{}

// TestFunctionsHaveAtMost80Lines does not count the lines of composite literals, because a table is read line by
// line. A function within a literal counts separately.
func TestFunctionsHaveAtMost80Lines(t *testing.T) {
	found := map[string]bool{}
	set := token.NewFileSet()
	for _, file := range sources(t, ".go") {
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		all := lengths(set, parsed)
		for _, name := range tooLong(all, longest) {
			at := strings.TrimPrefix(filepath.Dir(file), "../../") + "." + name
			found[at] = true
			if longFunctions[at] == "" {
				t.Errorf("%s: %s has %d lines, at most %d read well: give its parts names, or add a reason to longFunctions",
					file, name, all[name], longest)
			}
		}
	}
	for at := range longFunctions {
		if !found[at] {
			t.Errorf("longFunctions allows %s, and there is no such function of more than %d lines", at, longest)
		}
	}
}

// TestLinesOfAFunctionAreItsStatements: lengths counts only the first and last line of a composite literal. A function
// within a literal counts separately, under the name of the enclosing function.
func TestLinesOfAFunctionAreItsStatements(t *testing.T) {
	const text = `package p

func short() { return }

func (t *T[K]) table() []int {
	all := []int{
		1,
		2,
	}
	return all
}

func (t T) verb() command {
	return command{
		name: "verb",
		run: func() error {
			for range 2 {
				try(point{
					x: 1,
				})
			}
			return nil
		},
	}
}

func declared()
`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"short": 1, "T.table": 5, "T.verb": 4, "T.verb (in a table)": 7}
	if got := lengths(set, file); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := tooLong(lengths(set, file), 4); !slices.Equal(got, []string{"T.table", "T.verb (in a table)"}) {
		t.Errorf("%q have more than 4 lines", got)
	}
}

// tooLong returns the names of functions with more than `most` lines.
func tooLong(lengths map[string]int, most int) (names []string) {
	for name, n := range lengths {
		if n > most {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lengths counts the lines of statements in each function of a file. The keys are the names of receiver and function.
func lengths(set *token.FileSet, file *ast.File) map[string]int {
	all := map[string]int{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = receiver(f.Recv.List[0].Type) + "." + name
		}
		all[name] = max(all[name], statements(set, f, all, name))
	}
	return all
}

// statements returns the number of lines of a function without those of its literals. It adds the functions within
// these literals to the map `all`.
func statements(set *token.FileSet, f ast.Node, all map[string]int, name string) int {
	lines := func(n ast.Node) int { return set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1 }
	total := lines(f)
	ast.Inspect(f, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		total -= max(0, lines(table)-2)
		ast.Inspect(table, func(n ast.Node) bool {
			if within, ok := n.(*ast.FuncLit); ok {
				of := name + " (in a table)"
				all[of] = max(all[of], statements(set, within, all, of))
				return false
			}
			return true
		})
		return false
	})
	return total
}

// receiver returns the type name of a method's receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
