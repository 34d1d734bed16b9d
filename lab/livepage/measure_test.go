package main

import (
	"errors"
	"os"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/lab/bench"
)

// A page is small, and an open page's memory does not grow with the number of steps.
func TestAPageLeftOpenDoesNotGrow(t *testing.T) {
	if os.Getenv("MILLRACE_BROWSER") == "none" {
		t.Skip("MILLRACE_BROWSER=none: no page is opened")
	}
	b, err := browser.Start()
	if errors.Is(err, browser.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f := &bench.LivePage{}
	if err := measure(b, t.TempDir(), sizes{Open: 2000, Grow: []int{5000, 10_000, 20_000}, Batch: 1250}, f); err != nil {
		t.Fatal(err)
	}
	t.Log(table(f))
	if f.PageBytes < 1000 || f.DataBytes < 1000 || f.PageBytes+f.DataBytes > 5<<20 || len(f.RedrawMS) == 0 {
		t.Errorf("the page has %d bytes and its data %d", f.PageBytes, f.DataBytes)
	}
	first := f.Grown[0]
	for _, g := range f.Grown[1:] {
		if g.HeapBytes > first.HeapBytes+512<<10 || g.Nodes > first.Nodes+100 ||
			g.Listeners > first.Listeners+20 {
			t.Errorf("behind %d steps it holds %+v", g.Steps, g)
		}
	}
}
