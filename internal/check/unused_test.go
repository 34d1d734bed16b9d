package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources lists the files of the repository with one of these endings, without test data and build results.
func sources(t *testing.T, endings ...string) []string {
	t.Helper()
	const root = "../.."
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (name[0] == '.' || slices.Contains([]string{"testdata", "build", "bin", "runs"}, name) &&
				!strings.Contains(path, "/lab/")) || name == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains(endings, filepath.Ext(name)) {
			all = append(all, path)
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files (%v)", len(all), err)
	}
	return all
}

// asked are names that the repository need not mention, because Go, a library or gonum's plots call them.
var asked = []string{"Accept", "String", "Error", "Is", "Unwrap", "Write", "Read", "Close", "Len", "Less", "Swap",
	"Push", "Pop", "Set",
	"Type", "MarshalText", "UnmarshalText", "MarshalJSON", "UnmarshalJSON", "UnmarshalYAML", "ServeHTTP", "Enabled",
	"Thumbnail", "init", "main"}

// forTests lists declarations that only tests use, each with the reason why it is not in a test file.
var forTests = map[string]string{
	"engine/ref Lazy":             "run's twins train over the lazy device",
	"job Schema":                  "a test writes schema.json by it",
	"schedule/machine LeastSlots": "it says how many slots an order needs, to whoever sets run.Wire.Slots",
}

// TestNothingIsDeclaredForNobody: every top-level declaration must be used outside of tests. An exported one may be
// used in an Example instead. An unexported one must be used in its own package. Exempt are the names in `asked` and
// forTests, and packages for tests. Uses are found by name, so the use of a name counts for all declarations of that
// name.
func TestNothingIsDeclaredForNobody(t *testing.T) {
	type declared struct {
		name, dir string
		at        token.Position
	}
	set := token.NewFileSet()
	var all []declared
	named := map[string]int{} // uses, by the exported name alone, or by folder and unexported name
	key := func(dir, name string) string {
		if ast.IsExported(name) {
			return name
		}
		return dir + " " + name
	}
	for _, file := range sources(t, ".go") {
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") { // an Example counts as a user
			for _, d := range parsed.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
					ast.Inspect(f, func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok && ast.IsExported(id.Name) {
							named[id.Name]++
						}
						return true
					})
				}
			}
			continue
		}
		dir, _ := filepath.Rel("../..", filepath.Dir(file))
		note := func(id *ast.Ident) {
			named[key(dir, id.Name)]--
			if id.Name != "_" && !strings.HasSuffix(dir, "test") && dir != "internal/shared" {
				all = append(all, declared{id.Name, dir, set.Position(id.Pos())})
			}
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				note(d.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						note(s.Name)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							note(id)
						}
					}
				}
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				named[key(dir, id.Name)]++
			}
			return true
		})
	}
	inPage := regexp.MustCompile(`\.([A-Z]\w*)`)
	for _, page := range sources(t, ".html", ".svg", ".tmpl") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range inPage.FindAllStringSubmatch(string(text), -1) {
			named[field[1]]++
		}
	}
	for _, d := range all {
		if named[key(d.dir, d.name)] <= 0 && !slices.Contains(asked, d.name) && forTests[d.dir+" "+d.name] == "" {
			t.Errorf("%v: nobody but tests names %s; delete it", d.at, d.name)
		}
	}
}
