// Livepage measures the load that a run's page puts on the browser that shows it.
//
// In: nothing. It writes a made-up run of 10,000 steps and opens its page in a headless Chromium. Then it adds steps as
// a training does, up to 200,000. Out, as a table and as JSON: the bytes of the page and of its data, the time to
// redraw everything, and the page's memory after 50,000 and after 200,000 steps. Refused: a machine without Chromium.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/record"
)

func main() {
	to := flag.String("o", "lab/results/live-page.json", "write the figures to this file")
	flag.Parse()
	if err := look(*to); err != nil {
		fmt.Fprintln(os.Stderr, "livepage:", err)
		os.Exit(1)
	}
}

func look(to string) error {
	b, err := browser.Start()
	if err != nil {
		return err
	}
	defer b.Close()
	dir, remove, err := document.Scratch("millrace-livepage-")
	if err != nil {
		return err
	}
	defer remove()
	f := &bench.LivePage{Head: record.Begin("livepage", "The page of a long run in a browser")}
	err = measure(b, dir, sizes{Open: 10_000, Grow: []int{50_000, 200_000}, Batch: 2000}, f)
	if err != nil {
		return err
	}
	fmt.Print(table(f))
	f.End()
	return record.Write(to, f)
}

// table returns the results in Markdown.
func table(f *bench.LivePage) string {
	text := fmt.Sprintf("| steps | page | its data | a redraw, median | at most |\n|---:|---:|---:|---:|---:|\n"+
		"| %d | %d KiB | %d KiB | %.1f ms | %.1f ms |\n\n| steps seen | heap | nodes | listeners |\n|---:|---:|---:|---:|\n",
		f.Steps, f.PageBytes>>10, f.DataBytes>>10, f.MedianMS, f.MostMS)
	for _, g := range f.Grown {
		text += fmt.Sprintf("| %d | %.2f MiB | %d | %d |\n", g.Steps, float64(g.HeapBytes)/(1<<20), g.Nodes, g.Listeners)
	}
	return text
}
