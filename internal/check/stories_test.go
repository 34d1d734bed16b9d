package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// leastStories is the least number of stories in all packages.
const leastStories = 60

// TestStoriesAreFound: every story begins with a comment that says what it teaches, and the comment of storytest
// names every package with stories.
func TestStoriesAreFound(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "internal/storytest/storytest.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "# Rooms that have stories")
	list, _, _ = strings.Cut(list, "\npackage")
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		rooms, _, is := strings.Cut(strings.TrimPrefix(line, "//   - "), ": ")
		for room := range strings.SplitSeq(rooms, ", ") {
			listed[room] = is
		}
	}
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
		if !listed[room] {
			t.Errorf("%s has stories; list it in the comment of internal/storytest", room)
		}
		return nil
	})
	if err != nil || stories < leastStories {
		t.Errorf("%d stories, and there were %d at least (%v)", stories, leastStories, err)
	}
}
