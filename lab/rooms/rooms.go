// Package rooms draws which packages of this repository import which others, room by room. A room is a top-level
// folder.
//
// In: the folder of the repository, whose packages the go command lists. Out: the drawing between two marks in
// ARCHITECTURE.md, and the number of lines of each room, with and without tests. Refused: a folder without a module,
// and a document without the marks.
package rooms

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/millrace-ml/millrace/"

// Package is one package; Path is its path in the repository.
type Package struct {
	Path    string
	Imports []string // packages of the module
}

// room returns the first part of a path.
func room(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}

// List lists the packages of the module in a folder, except those that consist only of tests.
func List(ctx context.Context, dir string) ([]Package, error) {
	c := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,GoFiles,CgoFiles,Imports", "./...")
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=1")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("rooms: go list in %s: %w: %s", dir, err, strings.TrimSpace(stderr.String()))
	}
	var all []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                 string
			GoFiles, CgoFiles, Imports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("rooms: go list in %s: %w", dir, err)
		}
		if len(p.GoFiles)+len(p.CgoFiles) == 0 {
			continue
		}
		own := Package{Path: strings.TrimPrefix(p.ImportPath, module)}
		for _, i := range p.Imports {
			if inside, ok := strings.CutPrefix(i, module); ok {
				own.Imports = append(own.Imports, inside)
			}
		}
		all = append(all, own)
	}
}

// width is the maximal number of columns of a line of the drawing.
const width = 110

// Draw draws each room's packages, an importing package above those that it imports. A line first shows the imports
// from the package's own room, and after a bar the imports from other rooms. Among the imports from other rooms,
// packages in internal are left out, because any package may import them. Several packages of another room are shown as
// the room's name with dots.
func Draw(w io.Writer, all []Package) error {
	var names []string
	byRoom := map[string][]Package{}
	for _, p := range all {
		name := room(p.Path)
		if byRoom[name] == nil {
			names = append(names, name)
		}
		byRoom[name] = append(byRoom[name], p)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		column := 0
		for _, p := range byRoom[name] {
			column = max(column, len(p.Path))
		}
		for _, p := range topDown(byRoom[name]) {
			var inside, outside []string
			for _, i := range p.Imports {
				switch short, own := strings.CutPrefix(i, name+"/"); {
				case own:
					inside = append(inside, "/"+short)
				case i == name:
					inside = append(inside, name)
				case !strings.HasPrefix(i, "internal/"): // imports of internal are not drawn: any package may have them
					outside = append(outside, i)
				}
			}
			words := inside
			if len(outside) > 0 {
				words = append(append(words, "|"), gathered(outside)...)
			}
			wrap(&out, fmt.Sprintf("%-*s ", column, p.Path), words)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// gathered shortens several packages of one room to one word.
func gathered(paths []string) []string {
	var words []string
	for i := 0; i < len(paths); {
		last := i + 1
		for last < len(paths) && room(paths[last]) == room(paths[i]) {
			last++
		}
		if words = append(words, paths[i]); last-i > 1 {
			words[len(words)-1] = room(paths[i]) + "/..."
		}
		i = last
	}
	return words
}

// wrap writes words after a head, and indents further lines to the same column.
func wrap(out *strings.Builder, head string, words []string) {
	line := head
	if len(words) > 0 {
		line = head + "->"
	}
	for _, word := range words {
		if len(line)+1+len(word) > width {
			out.WriteString(strings.TrimRight(line, " ") + "\n")
			line = strings.Repeat(" ", len(head)+2)
		}
		line += " " + word
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}

// topDown orders packages so that each one comes before the packages that it imports, and otherwise by name.
func topDown(all []Package) []Package {
	var out []Package
	left := slices.Clone(all)
	for len(left) > 0 {
		at := slices.IndexFunc(left, func(p Package) bool {
			return !slices.ContainsFunc(left, func(other Package) bool { return slices.Contains(other.Imports, p.Path) })
		})
		at = max(at, 0) // at is never -1: the compiler forbids import cycles
		out = append(out, left[at])
		left = slices.Delete(left, at, at+1)
	}
	return out
}

// Size is the number of lines of one room.
type Size struct {
	Room  string
	Code  int // Go, without tests
	Tests int // _test.go files, and packages whose folder's name ends in test
	Other int // C, C++, headers, Python, JavaScript, shell, CSS
	Files int // number of files of code, tests and other
}

// Sizes counts the lines of each room of the repository in a folder, without test data.
func Sizes(dir string) ([]Size, error) {
	byRoom := map[string]*Size{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "build", "bin", "runs"},
				name) || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(name)
		if !slices.Contains([]string{".go", ".cpp", ".c", ".h", ".py", ".js", ".sh", ".css"}, ext) ||
			!strings.Contains(name, "/") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := byRoom[room(name)]
		if at == nil {
			at = &Size{Room: room(name)}
			byRoom[at.Room] = at
		}
		at.Files++
		switch lines := bytes.Count(text, []byte("\n")); {
		case ext != ".go":
			at.Other += lines
		case strings.HasSuffix(name, "_test.go") || strings.HasSuffix(filepath.Dir(name), "test"):
			at.Tests += lines
		default:
			at.Code += lines
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rooms: %w", err)
	}
	var all []Size
	for _, s := range byRoom {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Size) int { return strings.Compare(a.Room, b.Room) })
	return all, nil
}

// The marks around the drawing in a document.
const (
	begins = "<!-- drawn by: millrace-lab rooms -->"
	ends   = "<!-- end of the drawing -->"
)

// Into returns a document with the drawing between its marks.
func Into(document []byte, all []Package) ([]byte, error) {
	head, rest, found := bytes.Cut(document, []byte(begins))
	_, tail, closed := bytes.Cut(rest, []byte(ends))
	if !found || !closed {
		return nil, fmt.Errorf("rooms: the document has no lines %q and %q with the drawing between them", begins, ends)
	}
	var drawing bytes.Buffer
	if err := Draw(&drawing, all); err != nil {
		return nil, err
	}
	return slices.Concat(head, []byte(begins+"\n\n```\n"), drawing.Bytes(), []byte("```\n\n"+ends), tail), nil
}
