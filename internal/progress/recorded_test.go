package progress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func recorded(t *testing.T, path string) []Event {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := ReadRecording(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return all
}

// bounds has, for each recording, the factor by which a time left may be wrong. Most of the comments say how long
// the recorded work takes. The recordings were made on a machine with two cores and 10 to 30 other programs.
var bounds = map[string]float64{
	"profile-gpt":           1.5, // half a minute
	"profile-convnet-quick": 1.5, // eleven seconds, of which visits fill 9.5
	"tune-mlp":              1.5, // twenty seconds; some settings take 100 times as long as others
	"tune-gpt":              1.5, // eight minutes
	"train-gpt":             1.5, // two minutes; a time left is given in the second minute
	"profile-gpt-quick":     1.5,
	"train-gpt-saves":       1.5, // twenty seconds, with a save every ten steps
	"bench-mlp":             1.5, // four plans in four rounds
	"profile-gpt-thorough":  1.5,
	// In the middle of this recording the other programs on the machine end, and the rest of the work is twice as fast.
	"profile-gpt-halved": 1.5,
}

// TestATimeLeftIsHonestOnAMachineThatOthersUse replays recordings of profile, tune, train and bench, made while other
// programs used the machine.
func TestATimeLeftIsHonestOnAMachineThatOthersUse(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) != len(bounds) {
		t.Fatalf("%d recordings, and %d bounds: %v", len(files), len(bounds), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		t.Run(name, func(t *testing.T) {
			all := recorded(t, path)
			off, n, outside, total := 1.0, 0, 0, all[len(all)-1].At
			Replay(all, total, func(at, left float64) {
				truth := total - at
				if truth < total/10 {
					return
				}
				n++
				ratio := max(left/truth, truth/left)
				if off = max(off, ratio); ratio > 1.5 {
					outside++
				}
			})
			t.Logf("%.0f s: %d times asked, off by %.2f at most, by more than 1.5 %d times", total, n, off,
				outside)
			if off > bounds[name] || n < 20 {
				t.Errorf("off by %.2f, and %v at most is right", off, bounds[name])
			}
		})
	}
}

// TestAnUnknownCostIsReplayed: Replay estimates no remaining time while a piece of unknown duration remains. A Cost of
// -1, as in a file, counts as unknown.
func TestAnUnknownCostIsReplayed(t *testing.T) {
	events := func(cost float64) []Event {
		all := []Event{{Plan: "all", Left: []Piece{{What: "rest", Kind: "step", Group: "step", Cost: cost}}}}
		for i := range 20 {
			all = append(all, Event{At: float64(10 * i), Begin: &Piece{What: "step", Kind: "step", Group: "step", Cost: 10}})
		}
		return all
	}
	said := func(cost float64) (n int) {
		Replay(events(cost), 300, func(float64, float64) { n++ })
		return n
	}
	if n := said(-1); n > 0 || said(100) == 0 {
		t.Errorf("%d times left are given with a piece of unknown duration, %d with one of a known", n, said(100))
	}
}
