// Package shared finds the folder of papers, published profiles and planners' answers that tests compare with. The
// folder is next to the repository, not in it. A test that needs the folder says so, and is skipped if it is absent.
// The package is for tests only.
package shared

import (
	"os"
	"path/filepath"
	"testing"
)

// Variable is an environment variable with the folder's path.
const Variable = "MILLRACE_SHARED"

// Dir returns the folder: the value of MILLRACE_SHARED, or a folder `shared` next to the test's repository. It skips
// the test if there is none.
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
