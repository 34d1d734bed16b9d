// Formats prints the page of file formats, docs/formats.md, from the Go types that are read and written.
//
// In: the repository's folder. Out: Markdown on stdout, with a table of fields for each type, made from the comments
// at the fields, and tables of what a JSON schema describes. Refused: a missing type, and a type without a field
// that has a JSON name. `make gallery` runs it.
package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"text/template"
)

//go:embed formats.md.tmpl
var page string

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	text, err := formats(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "formats:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

// formats returns the page from the sources in a folder.
func formats(dir string) (string, error) {
	r := reader{dir: dir, packages: map[string][]*ast.File{}}
	t, err := template.New("formats").Funcs(template.FuncMap{"fields": r.fields, "settings": r.settings}).Parse(page)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, nil)
	return b.String(), err
}

// reader finds types in the sources.
type reader struct {
	dir      string
	packages map[string][]*ast.File
}

// fields returns the tables of types, given as package.Type. A field whose type has a table too refers to the table of
// this type.
func (r reader) fields(types ...string) (string, error) {
	var b strings.Builder
	for i, name := range types {
		pkg, typ, _ := strings.Cut(name, ".")
		spec, doc, err := r.find(pkg, typ)
		if err != nil {
			return "", err
		}
		if i > 0 {
			fmt.Fprintf(&b, "\n`%s`: %s\n\n", typ, lower(sentence(doc, typ)))
		}
		rows := 0
		b.WriteString("| field | type | meaning |\n|---|---|---|\n")
		for _, f := range spec.Fields.List {
			key := keyOf(f)
			if key == "" {
				continue
			}
			said := oneLine(f.Doc.Text())
			if said == "" {
				said = oneLine(f.Comment.Text())
			} else if len(f.Names) > 0 {
				said = without(f.Names[0].Name, said)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, typeOf(f.Type), cell(said))
			rows++
		}
		if rows == 0 {
			return "", fmt.Errorf("%s has no field with a name in JSON", name)
		}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// find returns a struct of a package of the repository.
func (r reader) find(pkg, typ string) (*ast.StructType, string, error) {
	if r.packages[pkg] == nil {
		paths, err := filepath.Glob(filepath.Join(r.dir, filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			return nil, "", err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return nil, "", err
			}
			r.packages[pkg] = append(r.packages[pkg], file)
		}
	}
	for _, file := range r.packages[pkg] {
		for _, decl := range file.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range types.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && t.Name.Name == typ {
					if made, ok := t.Type.(*ast.StructType); ok {
						return made, types.Doc.Text(), nil
					}
				}
			}
		}
	}
	return nil, "", fmt.Errorf("package %s has no struct %s", pkg, typ)
}

// keyOf returns a field's name in a file, with "?" if it may be missing; "" if the field is in no file.
func keyOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
	name, rest, _ := strings.Cut(tag.Get("json"), ",")
	if name == "" || name == "-" || typeOf(f.Type) == "gone" {
		return ""
	}
	if strings.Contains(rest, "omit") {
		return name + "?"
	}
	return name
}

// typeOf returns the JSON name of a Go type.
func typeOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		switch {
		case t.Name == "string" || t.Name == "bool":
			return t.Name
		case t.Name == "any":
			return "any"
		case strings.HasPrefix(t.Name, "int") || strings.HasPrefix(t.Name, "uint"):
			return "integer"
		case strings.HasPrefix(t.Name, "float"):
			return "number"
		}
		return t.Name
	case *ast.StarExpr:
		return typeOf(t.X) + " or null"
	case *ast.ArrayType:
		return "list of " + typeOf(t.Elt)
	case *ast.MapType:
		return typeOf(t.Value) + " by " + typeOf(t.Key)
	case *ast.SelectorExpr:
		return t.Sel.Name
	}
	return "object"
}

// sentence returns the first sentence of a type's comment, without the type's name.
func sentence(doc, typ string) string {
	text := oneLine(doc)
	if at := strings.Index(text, ". "); at > 0 {
		text = text[:at+1]
	}
	return without(typ, text)
}

// without removes a leading Go name from a comment, with the "is", "are" or colon that follows it.
func without(name, text string) string {
	for _, verb := range []string{" is ", " are ", ": "} {
		if rest, ok := strings.CutPrefix(text, name+verb); ok {
			return rest
		}
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}

// lower begins a text with a lower-case letter, unless its first word has further capitals.
func lower(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if first != "" && first[1:] == strings.ToLower(first[1:]) {
		return strings.ToLower(text[:1]) + text[1:]
	}
	return text
}
