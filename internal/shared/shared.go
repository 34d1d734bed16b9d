// Package shared finds the folder of papers, published profiles and planners' answers
// that tests compare with. It lies beside the repository, not in it: a test that needs
// it says so and skips where it is absent. For tests only.
package shared

import (
	"os"
	"path/filepath"
	"testing"
)

// Variable overrides where the folder is looked for.
const Variable = "MILLRACE_SHARED"

// Dir is the folder: what MILLRACE_SHARED names, or a folder `shared` beside the
// repository that the test is in. It skips the test where there is none.
func Dir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(Variable); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		folder := filepath.Join(up, "shared")
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder
		}
	}
	t.Skip("shared folder absent: no folder `shared` beside the repository and no " + Variable)
	return ""
}
