package live

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestThePageThatOpensIsSentAllRuns: the first event that a page gets has all runs, also those that were made while no
// page was open. A page that gets one run in its first event would show only that run.
func TestThePageThatOpensIsSentAllRuns(t *testing.T) {
	root := t.TempDir()
	put := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name, "metrics.jsonl"), stepLine(0, 1))
	}
	put("a")
	shelf, server := shelfOf(t, root)
	first := listen(t, server.URL, "", "", "")
	if n := first.next(); len(n.Runs) != 1 {
		t.Fatalf("found %+v", n.Runs)
	}
	first.end()
	for shelf.Watched() {
		time.Sleep(time.Millisecond)
	}
	put("b")
	put("c")
	if n := listen(t, server.URL, "", "", "").next(); len(n.Runs) != 3 || !n.All {
		t.Errorf("the second page is first sent %+v", n.Runs)
	}
}
