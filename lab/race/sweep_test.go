package race

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/stats"
)

// opened is a fake session. It records the name of each session that is closed.
type opened struct {
	fake
	closed *[]string
}

func (o *opened) Close() error {
	*o.closed = append(*o.closed, o.name)
	return nil
}

func TestSweepMeasuresTheFastestAgain(t *testing.T) {
	rates := map[string][]int{"steady": {50, 50}, "lucky": {60, 40}, "good": {45, 45}, "fair": {30, 30}, "slow": {10, 99}}
	times, closed := map[string]int{}, []string{}
	open := func(_ context.Context, c Command) (Session, error) {
		rate := rates[c.Name][times[c.Name]]
		times[c.Name]++
		return &opened{fake{name: c.Name, on: &machine{}, work: Work{rate, time.Second}}, &closed}, nil
	}
	candidates := []Command{{Name: "slow"}, {Name: "steady"}, {Name: "lucky"}, {Name: "good"}, {Name: "fair"}}
	told := 0
	all, err := Sweep(t.Context(), candidates, 2, open, func(Measured) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, fmt.Sprintf("%s %v of %d", m.Name, m.Median, len(m.Rates)))
	}
	if want := "steady 50 of 4, good 45 of 4, lucky 40 of 4, fair 30 of 4, slow 10 of 2"; strings.Join(got, ", ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	if len(closed) != 9 || told != 9 {
		t.Errorf("closed %v, told %d times; want each opening once", closed, told)
	}
}

// Here the machine is busy during all visits of one candidate in the first round, except one visit. This candidate is
// better than the others, and still wins. In the second round the candidates take turns.
func TestSweepOnABusyMachine(t *testing.T) {
	on, closed := &machine{}, []string{}
	openings := map[string]int{}
	open := func(_ context.Context, c Command) (Session, error) {
		openings[c.Name]++
		f := fake{name: c.Name, on: on, work: Work{40, time.Second}}
		if c.Name == "better" {
			f.work.Samples = 50
			f.disturbed = openings[c.Name] == 1
		}
		return &opened{f, &closed}, nil
	}
	candidates := []Command{{Name: "better"}}
	for i := range finalists {
		candidates = append(candidates, Command{Name: fmt.Sprint("other", i)})
	}
	all, err := Sweep(t.Context(), candidates, 3, open, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Name != "better" || all[0].Median != 50 {
		t.Errorf("the best is %+v", all[0])
	}
	if got := strings.Join(on.visits[len(on.visits)-2*finalists:], " "); got != strings.Repeat(" better other0 other1 "+
		"other2", 2)[1:] {
		t.Errorf("the last visits were %s", got)
	}
}

func TestSweepEndsAtAnError(t *testing.T) {
	closed := []string{}
	open := func(_ context.Context, c Command) (Session, error) {
		if c.Name == "missing" {
			return nil, errors.New("race: missing: it does not start")
		}
		return &opened{fake{name: c.Name, on: &machine{}, work: Work{1, 1}, failAt: 3}, &closed}, nil
	}
	if _, err := Sweep(t.Context(), []Command{{Name: "missing"}}, 1, open, nil); err == nil ||
		!strings.Contains(err.Error(), "does not start") {
		t.Errorf("no process: %v", err)
	}
	if _, err := Sweep(t.Context(), []Command{{Name: "failing"}}, 1, open, nil); !errors.Is(err, errFake) ||
		len(closed) != 1 {
		t.Errorf("a failing candidate: %v, closed %v", err, closed)
	}
	if _, err := Sweep(t.Context(), nil, 1, open, nil); err == nil || !strings.Contains(err.Error(), "0 candidates") {
		t.Errorf("no candidates: %v", err)
	}
}

func TestTables(t *testing.T) {
	var text strings.Builder
	result := Result{
		A: Side{Name: "millrace", Median: 60}, B: Side{Name: "a|b", Median: 7.8},
		Ratios: make([]float64, 15), MedianRatio: 7.6923, Interval: stats.Interval{Lo: 7.5, Hi: 7.9, Confidence: 0.9648},
	}
	if err := WriteResults(&text, Unit{"tokens", 128}, []Result{result}); err != nil {
		t.Fatal(err)
	}
	want := `| A | B | A, tokens/s | B, tokens/s | A over B, median | interval | pairs |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| millrace | a\|b | 7,680 | 998 | 7.692 | 7.500 to 7.900 (96.5 %) | 15 |
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", &text, want)
	}
	text.Reset()
	if err := WriteSweep(&text, Unit{"images", 1}, []Measured{{Name: "one", Rates: []float64{999.6, 1234567},
		Median: 1000}}); err != nil {
		t.Fatal(err)
	}
	want = `| candidate | median, images/s | least | most | visits |
| --- | ---: | ---: | ---: | ---: |
| one | 1,000 | 1,000 | 1,234,567 | 2 |
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", &text, want)
	}
}
