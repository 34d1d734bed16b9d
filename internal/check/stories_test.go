package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// leastStories is how many there are at least, of all rooms.
const leastStories = 60

// TestStoriesAreFound holds rooms to their stories: each begins with a comment that says what it teaches, and
// ARCHITECTURE.md, where it says how to read a room, names every room that has some.
func TestStoriesAreFound(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "read its stories first")
	list, _, _ = strings.Cut(list, "\n\n")
	stories := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && d.Name()[0] == '.':
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(filepath.Dir(path), "testdata/stories"):
			return nil
		}
		stories++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s does not begin with a comment that says what it teaches", path)
		}
		room, _ := filepath.Rel(root, filepath.Dir(filepath.Dir(filepath.Dir(path))))
		if !strings.Contains(list, "`"+room+"`") {
			t.Errorf("%s has stories, and ARCHITECTURE.md does not say so where it says how to read a room", room)
		}
		return nil
	})
	if err != nil || stories < leastStories {
		t.Errorf("%d stories, and there were %d at least (%v)", stories, leastStories, err)
	}
}
