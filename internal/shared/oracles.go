package shared

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Oracles reads the answers of published planners from the files that match `pattern`, each as a T. The key is the
// file's name without its ending. Oracles skips the test if there are no such files.
func Oracles[T any](t testing.TB, pattern string) map[string]T {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Dir(t), "oracles", pattern+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("shared folder absent: it has no oracles of " + pattern)
	}
	found := map[string]T{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var one T
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[strings.TrimSuffix(filepath.Base(file), ".json")] = one
	}
	return found
}
