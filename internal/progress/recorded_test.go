package progress

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// event is a line of a recording: what was said to a Work, so many seconds behind its beginning.
type event struct {
	At    float64 `json:"at"`
	Plan  string  `json:"plan"` // of which Left is left
	Left  []Piece `json:"left"`
	Begin *Piece  `json:"begin"`
	End   bool    `json:"end"`
}

func recorded(t *testing.T, path string) []event {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []event
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if e.Begin != nil && e.Begin.Kind == "" {
			e.Begin.Kind = e.Begin.What
		}
		for i := range e.Left {
			if e.Left[i].Cost < 0 {
				e.Left[i].Cost = Unknown
			}
			if e.Left[i].Kind == "" {
				e.Left[i].Kind = e.Left[i].What
			}
		}
		all = append(all, e)
	}
	return all
}

// replay says to a Work what was recorded, asks it each so many seconds how much is left, and calls said with what it
// answers where that is honest and a tenth of the work is left at least.
func replay(all []event, said func(at, left, truth float64)) {
	var w Work
	zero := time.Unix(0, 0)
	on := func(at float64) time.Time { return zero.Add(time.Duration(at * 1e9)) }
	total := all[len(all)-1].At
	for i, e := range all {
		switch {
		case e.Begin != nil:
			w.Begin(on(e.At), *e.Begin)
		case e.End:
			w.End(on(e.At))
		default:
			w.Plan(on(e.At), e.Plan, e.Left...)
		}
		if i+1 == len(all) {
			break
		}
		for at := e.At; at < all[i+1].At; at += total / 200 {
			if s := w.At(on(at)); s.Honest && total-at > total/10 {
				said(at, s.Left.Seconds(), total-at)
			}
		}
	}
}

// bounds is by what factor a time left may be off in each recording, on a machine of two cores with 10 to 30 other
// programs on them.
var bounds = map[string]float64{
	"profile-gpt": 1.5, // in half a minute
	"tune-gpt":    1.6, // in eight minutes
	"train-gpt":   1.6,
	// The other programs end in its middle: what is left goes twice as fast as all before it, which nobody can know.
	"profile-gpt-halved": 2.1,
}

// Profiles, traversals and a training that were recorded while other programs took the machine's cores.
func TestATimeLeftIsHonestOnAMachineThatOthersUse(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) != len(bounds) {
		t.Fatalf("%d recordings, and %d bounds: %v", len(files), len(bounds), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		t.Run(name, func(t *testing.T) {
			all := recorded(t, path)
			off, n, outside := 1.0, 0, 0
			replay(all, func(at, left, truth float64) {
				n++
				ratio := max(left/truth, truth/left)
				if off = max(off, ratio); ratio > 1.5 {
					outside++
				}
			})
			t.Logf("%.0f s: %d times asked, off by %.2f at most, by more than 1.5 %d times", all[len(all)-1].At, n, off,
				outside)
			if off > bounds[name] || n < 50 {
				t.Errorf("off by %.2f, and %v at most is right", off, bounds[name])
			}
		})
	}
}
