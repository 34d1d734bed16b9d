package document

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestScratchIsRemoved: a folder for temporary files is removed by the function that Scratch returns, or else by
// Abandon.
func TestScratchIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var dirs []string
	var removes []func()
	for range 2 {
		dir, remove, err := Scratch("millrace-test-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "full"), []byte("of it"), 0o600); err != nil {
			t.Fatal(err)
		}
		dirs, removes = append(dirs, dir), append(removes, remove)
	}
	there := func(dir string) bool {
		_, err := os.Stat(dir)
		return !errors.Is(err, os.ErrNotExist)
	}
	removes[0]()
	if there(dirs[0]) || !there(dirs[1]) {
		t.Fatalf("after remove: %v, %v; want one of the two", there(dirs[0]), there(dirs[1]))
	}
	Abandon()
	// Abandon keeps both locks, because a process ends after it. This process goes on, and other tests need the locks.
	unfinished.Unlock()
	scratch.Unlock()
	if there(dirs[1]) {
		t.Error("Abandon left a folder")
	}
	removes[1]()
}
