package native

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEverySourceIsEmbedded checks that the patterns of go:embed match every source file. A file that they miss would
// compile in this repository, but be missing on a user's machine.
func TestEverySourceIsEmbedded(t *testing.T) {
	files := func(of fs.FS) (paths []string) {
		t.Helper()
		err := fs.WalkDir(of, ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), ".") && filepath.Ext(path) != ".go" {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	embedded, folder := files(Sources), files(os.DirFS("."))
	for _, path := range folder {
		if !slices.Contains(embedded, path) {
			t.Errorf("%s is not embedded; add it to the patterns of Sources", path)
		}
	}
	if len(embedded) != len(folder) || !slices.Contains(embedded, "shim/millrace.h") {
		t.Errorf("%d files are embedded, of %d", len(embedded), len(folder))
	}
}
