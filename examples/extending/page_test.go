package extending_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThePageShowsThisCode checks that docs/extending.md contains the code of these tests, character for character.
func TestThePageShowsThisCode(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "extending.md"))
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, m[1])
	}
	want := []string{part(t, "schedule"), part(t, "planner")}
	for _, name := range []string{"row.txt", "equation.txt"} {
		text, err := os.ReadFile(filepath.Join("policy", name))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(text))
	}
	want = append(want, part(t, "carrier"), part(t, "layer"))
	if len(shown) != len(want) {
		t.Fatalf("the page has %d blocks of Go; want %d", len(shown), len(want))
	}
	for i := range want {
		if shown[i] != want[i] {
			t.Errorf("block %d of the page is\n%s\nand the code\n%s", i, shown[i], want[i])
		}
	}
}

// part returns the text between the "begin" and "end" marks of a test file.
func part(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name + "_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, begun := strings.Cut(string(text), "// begin: "+name+"\n")
	code, _, ended := strings.Cut(text2, "\n// end: "+name)
	if !begun || !ended {
		t.Fatalf("%s_test.go has no marks of %s", name, name)
	}
	return code
}
