package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
)

// TestStories runs the stories in testdata: which rows a step trains on, and how files and texts are divided.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{dir: t.TempDir()} })
}

// storyWorld has a folder, and the data set that was opened last.
type storyWorld struct {
	dir string
	set *Set
}

// Do implements storytest.World.
//
//	file name=F                                 writes a file
//	open name=F [seed=N context=N]              opens it; prints how many samples and which classes it has
//	batch step=N of=N [first=N rows=N test]     prints rows of a step's batch, which has `of` rows
func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	var name string
	d.MaybeScanArgs(t, "name", &name)
	path := filepath.Join(w.dir, name)
	switch d.Cmd {
	case "file":
		return "", os.WriteFile(path, []byte(d.Input+"\n"), 0o600)
	case "open":
		var o Options
		context := 0
		d.MaybeScanArgs(t, "seed", &o.Seed)
		if d.MaybeScanArgs(t, "context", &context); context > 0 {
			o.Fields, o.Target = []Field{{"input", []int{context}, Int, nil}, {"target", []int{context}, Int, nil}}, "target"
		}
		set, err := Open(path, o)
		if err != nil {
			return "", fmt.Errorf("%s", strings.ReplaceAll(err.Error(), w.dir+"/", ""))
		}
		w.set = set
		return w.opened(), nil
	case "batch":
		var step, of, first int
		d.ScanArgs(t, "step", &step)
		d.ScanArgs(t, "of", &of)
		rows := of
		d.MaybeScanArgs(t, "first", &first)
		d.MaybeScanArgs(t, "rows", &rows)
		split := w.set.Train
		if d.HasArg("test") {
			split = w.set.Test
		}
		b, err := split.Batch(step, of, first, rows)
		if err != nil {
			return "", err
		}
		return w.shown(b, rows), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// opened describes a data set.
func (w *storyWorld) opened() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d samples to train on, %d to test with", w.set.Train.Len(), w.set.Test.Len())
	if w.set.Kept != "" {
		fmt.Fprintf(&b, ": %s", w.set.Kept)
	}
	fmt.Fprintf(&b, "\nof each %v, in %d classes", w.set.Fields, w.set.Classes)
	if w.set.ClassNames != nil {
		fmt.Fprintf(&b, ": %s", w.set.Named())
	}
	if w.set.Heading != nil {
		fmt.Fprintf(&b, "\nheading %v", w.set.Heading)
	}
	return b.String()
}

// shown returns the rows of a batch, one on each line; rows of a text are shown as characters.
func (w *storyWorld) shown(batch Batch, rows int) string {
	var b strings.Builder
	input, target := batch["input"], batch["target"]
	for r := range rows {
		if w.set.Tokens {
			n := len(input.Ints) / rows
			fmt.Fprintf(&b, "%q -> %q\n", characters(input.Ints[r*n:(r+1)*n]), characters(target.Ints[r*n:(r+1)*n]))
			continue
		}
		n := len(input.Floats) / rows
		fmt.Fprintf(&b, "%.2f -> %d\n", input.Floats[r*n:(r+1)*n], target.Ints[r])
	}
	return b.String()
}

func characters(bytes []int64) string {
	var text []byte
	for _, c := range bytes {
		text = append(text, byte(c))
	}
	return string(text)
}
