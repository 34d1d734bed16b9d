package roles_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// policyNames returns the names of the constants of all policies except Sync, which a plan without a policy has. A
// policy need not have a constant.
func policyNames(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../schedule/policy.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name != "Sync" {
			if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Policy" {
				names = append(names, v.Names[0].Name)
			}
		}
		return true
	})
	if len(names) < 6 || !slices.Contains(names, "DoubleBuffered") {
		t.Fatalf("schedule/policy.go has the constants %q; the policies' are missing", names)
	}
	return names
}

// registered returns the names of all families, policies and planners.
func registered(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, f := range family.All() {
		names = append(names, f.Name)
	}
	for _, w := range schedule.Policies() {
		names = append(names, string(w))
	}
	for _, p := range plan.Planners() {
		names = append(names, p.Name)
	}
	if len(names) < 25 {
		t.Fatalf("only %q", names)
	}
	return names
}

// named finds one of the names in a text. A name with a digit or a hyphen may be anywhere in the text. Any other name
// must be the whole text, or stand in quotes.
func named(text string, names []string) (string, bool) {
	for _, name := range names {
		if text == name || strings.Contains(text, strconv.Quote(name)) {
			return name, true
		}
		if strings.ContainsAny(name, "0123456789-") &&
			regexp.MustCompile(`(^|[^\w-])`+regexp.QuoteMeta(name)+`($|[^\w-])`).MatchString(text) {
			return name, true
		}
	}
	return "", false
}

// columns lists, by file, strings that are a family's name but mean something else. In a table of measured steps, dp is
// a column: the degree of data parallelism.
var columns = map[string]string{"../measured/steps.go": "dp"}

// TestTuneNamesNobody checks that no string in tune names a family, a policy or a planner.
func TestTuneNamesNobody(t *testing.T) {
	names, constants := registered(t), policyNames(t)
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field:
				n.Tag = nil
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && columns[path] != text {
					if name, ok := named(text, names); ok {
						t.Errorf("%s: %q names %s; ask for what it does (tune/roles)", set.Position(n.Pos()), text, name)
					}
				}
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "schedule" && slices.Contains(constants, n.Sel.Name) {
					t.Errorf("%s: schedule.%s is a policy's name; ask for what it does", set.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || files < 30 {
		t.Fatalf("%d files: %v", files, err)
	}
}

// TestNamesAreFound checks that the function `named` finds names, so that TestTuneNamesNobody can fail.
func TestNamesAreFound(t *testing.T) {
	names := registered(t)
	for text, want := range map[string]bool{
		"1f1b": true, "order 1f1b, say": true, "zb-h1": true, `"dp" has one stage`: true, "sync": true, "dapple": true,
		"1f1b-rrr": false, "elastic averaging": false, "a single stage": false, "": false,
	} {
		if name, ok := named(text, names); ok != want {
			t.Errorf("%q names %q", text, name)
		}
	}
}

// TestRoles checks which family has each role.
func TestRoles(t *testing.T) {
	averaging, policy := roles.Averaging()
	got := []string{roles.Pipelines().Name, roles.Undivided().Name, averaging.Name, string(policy),
		roles.Partitioner().Name}
	if want := []string{"1f1b", "dp", "elastic", "elastic", "avgpipe"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var whole []string
	for _, f := range family.All() {
		if roles.WholeModel(f) {
			whole = append(whole, f.Name)
		}
		if len(roles.PoliciesOf(f)) == 0 {
			t.Errorf("%s keeps no weight policy", f.Name)
		}
	}
	if !slices.Equal(whole, []string{"dp", "single"}) {
		t.Errorf("data parallelism is %q", whole)
	}
}
