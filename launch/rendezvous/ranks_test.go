package rendezvous

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
)

// steeper is by how much an exponent exceeds 1 before something is named: times vary.
const steeper = 0.2

// Up to 1,024 ranks agree, and what grows faster than their number is named. MILLRACE_RANKS is the file that says
// so: MILLRACE_RANKS=lab/results/ranks.json go test ./launch/rendezvous -run RanksGrow, with the whole path.
func TestRanksGrow(t *testing.T) {
	path := os.Getenv("MILLRACE_RANKS")
	if path == "" {
		t.Skip("MILLRACE_RANKS names no file to write")
	}
	found := struct {
		Version int      `json:"version"`
		What    string   `json:"what"`
		Cores   int      `json:"cores"`
		Date    string   `json:"date"`
		Rows    []agreed `json:"rows"`
		Steeper []string `json:"faster_than_linear"` // between the last two rows
	}{Version: 1, What: "Ranks of one process meet, take a Program and say ten steps, over fake carriers",
		Cores: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly)}
	agree(t, 64) // memory is new
	for size := 128; size <= 1024; size *= 2 {
		runtime.GC()
		found.Rows = append(found.Rows, agree(t, size))
	}
	a, b := found.Rows[len(found.Rows)-2], found.Rows[len(found.Rows)-1]
	grows := func(what string, before, after float64) {
		if power := math.Log2(after / before); power > 1+steeper {
			found.Steeper = append(found.Steeper, fmt.Sprintf("%s, with the power %.1f of the ranks", what, power))
		}
	}
	grows("time", a.Seconds, b.Seconds)
	grows("memory of all", float64(a.BytesEach*a.Ranks), float64(b.BytesEach*b.Ranks))
	grows("a Program's text", float64(a.ProgramBytes), float64(b.ProgramBytes))
	grows("text that is sent, the whole Program to each", float64(a.SentBytes), float64(b.SentBytes))
	if err := document.WriteJSON(path, found); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", found)
	if b.Seconds > 10 || b.BytesEach > 1<<20 {
		t.Errorf("%d ranks took %.3g s and %d KiB each", b.Ranks, b.Seconds, b.BytesEach>>10)
	}
}
