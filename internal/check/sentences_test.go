package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// These constants limit the words of a doc comment's first sentence (firstSentence). mostWords is the limit for every
// comment. aimedWords is the limit for comments outside of tests in the packages that `concise` lists. A package is
// added to `concise` once its first sentences have at most aimedWords words.
const (
	mostWords  = 24
	aimedWords = 20
)

var concise = []string{"data", "engine", "schedule", "trace"}

// TestFirstSentencesAreShort: a reader who looks up a name reads the first sentence of its doc comment, and should
// understand the sentence at once.
func TestFirstSentencesAreShort(t *testing.T) {
	set := token.NewFileSet()
	for _, file := range sources(t, ".go") {
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		room, _, _ := strings.Cut(strings.TrimPrefix(file, "../../"), "/")
		most := mostWords
		if slices.Contains(concise, room) && !strings.HasSuffix(file, "_test.go") {
			most = aimedWords
		}
		for _, doc := range docs(parsed) {
			if first := firstSentence(doc.Text()); len(strings.Fields(first)) > most {
				t.Errorf("%s: the first sentence has %d words; give it %d at most, and say the rest in others: %s",
					set.Position(doc.Pos()), len(strings.Fields(first)), most, first)
			}
		}
	}
}

// docs returns the doc comments of a file: of the package, and of each declaration, type, value and field.
func docs(file *ast.File) []*ast.CommentGroup {
	all := []*ast.CommentGroup{file.Doc}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all = append(all, n.Doc)
		case *ast.GenDecl:
			all = append(all, n.Doc)
		case *ast.TypeSpec:
			all = append(all, n.Doc)
		case *ast.ValueSpec:
			all = append(all, n.Doc)
		case *ast.Field:
			all = append(all, n.Doc)
		}
		return true
	})
	return slices.DeleteFunc(all, func(c *ast.CommentGroup) bool { return c == nil })
}

// shortened are abbreviations whose period does not end a sentence.
var shortened = []string{"Alg", "Eq", "Fig", "Figs", "Sec", "Tab", "al", "cf", "e.g", "i.e", "no", "vs"}

// firstSentence returns a text up to its first period, colon, semicolon or question mark, or the whole first
// paragraph.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	words := strings.Fields(text)
	for i, w := range words {
		end := strings.TrimRight(w, `)"`)
		if end == "" || !strings.ContainsAny(end[len(end)-1:], ".:;?") ||
			slices.Contains(shortened, strings.TrimLeft(strings.TrimSuffix(end, "."), "(")) {
			continue
		}
		return strings.Join(words[:i+1], " ")
	}
	return strings.Join(words, " ")
}

func TestAFirstSentenceEndsWhereItDoes(t *testing.T) {
	for text, want := range map[string]string{
		"T is a value. It is small.\n": "T is a value.",
		"T is a value: small\n":        "T is a value:",
		"T is as\nFig. 8 of Narayanan et al. (2021) has it; v2.0 is\nnot.\n": "T is as Fig. 8 of Narayanan " +
			"et al. (2021) has it;",
		"T has no end\n\nThis is another paragraph.\n": "T has no end",
		"T is (see Fig. 3). It is.\n":                  "T is (see Fig. 3).",
		"":                                             "",
	} {
		if got := firstSentence(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", `// Package p is one.
package p

// a says two.
func a() {}

// b says three.
type b struct {
	// c says four.
	c int
}

const (
	// d says five.
	d = 1
	e = 2 // says nothing here
)
`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if got := docs(file); len(got) != 5 {
		t.Errorf("%d doc comments, want 5", len(got))
	}
}
