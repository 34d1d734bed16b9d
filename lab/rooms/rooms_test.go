package rooms

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The drawing in ARCHITECTURE.md is up to date.
func TestArchitectureHasTheDrawing(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := List(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Into(text, all)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Error("ARCHITECTURE.md has another drawing; make it again with: go run ./cmd/millrace-lab rooms --write " +
			"ARCHITECTURE.md")
	}
}

// An importing package is drawn above the packages that it imports. If both are in the same room, the imported one has
// a short name. A long line continues below.
func TestDraw(t *testing.T) {
	all := []Package{
		{"plan", []string{"profile"}},
		{"plan/a", []string{"plan", "plan/b", "cluster", "sim", "sim/memory", "tune/x"}},
		{"plan/b", nil},
		{"profile", []string{strings.Repeat("x", 60), strings.Repeat("y", 60)}},
	}
	var got strings.Builder
	if err := Draw(&got, all); err != nil {
		t.Fatal(err)
	}
	want := "plan/a -> plan /b | cluster sim/... tune/x\nplan   -> | profile\nplan/b\nprofile -> | " +
		strings.Repeat("x", 60) + "\n" +
		strings.Repeat(" ", 11) + strings.Repeat("y", 60) + "\n"
	if got.String() != want {
		t.Errorf("drawn\n%swant\n%s", got.String(), want)
	}
	if _, err := Into([]byte("no marks"), all); err == nil || !strings.Contains(err.Error(), begins) {
		t.Errorf("a document without marks: %v", err)
	}
}

func TestSizes(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"a/x.go": "1\n2\n", "a/x_test.go": "1\n", "a/b/y.cpp": "1\n2\n3\n", "a/testdata/z.go": "1\n", "top.go": "1\n",
		"a/atest/h.go": "1\n",
	} {
		if i := strings.LastIndex(name, "/"); i >= 0 {
			if err := os.MkdirAll(name[:i], 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Sizes(".")
	if err != nil || len(all) != 1 || all[0] != (Size{"a", 2, 2, 3, 4}) {
		t.Errorf("%+v, %v", all, err)
	}
}
