package bench

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
)

func speed(median, lo, hi, least float64) Speed {
	return Speed{race.Result{A: race.Side{Name: "ours"}, B: race.Side{Name: "theirs"}, MedianRatio: median,
		Interval: stats.Interval{Lo: lo, Hi: hi, Confidence: 0.95}, Ratios: []float64{median}}, least}
}

func TestVerdictsOnImportedModules(t *testing.T) {
	for _, c := range []struct {
		s    Speed
		text string
		good bool
	}{
		{speed(1.1, 0.9, 1.2, 1.1), "reaches 1.1", true},
		{speed(1.099, 0.9, 1.2, 1.1), "below 1.1", false},
		{speed(0.9, 0.8, 0.95, 0.9), "reaches 0.9", true},
		{speed(0.8, 0.7, 1, 0), "reported", true},
		{speed(0.8, 0.7, 0.999, 0), "broken", false},
	} {
		if text, good := c.s.Verdict(); text != c.text || good != c.good {
			t.Errorf("%+v: %s, %v, want %s, %v", c.s, text, good, c.text, c.good)
		}
	}
}

func TestWhatImportedModulesMiss(t *testing.T) {
	r := ImportedReport{Head: record.Head{What: "Modules"}, Modules: []ImportedModule{
		{Name: "gpt", Speeds: []Speed{speed(1.2, 1.1, 1.3, 1.1), speed(0.85, 0.8, 0.9, 0.9)}},
		{Name: "resnet18", Speeds: []Speed{speed(0.9, 0.8, 1.1, 0)}},
	}}
	want := "gpt: ours has 0.850 of the speed of theirs (0.800 to 0.900): below 0.9"
	if err := r.Missed(); err == nil || err.Error() != want {
		t.Error(err)
	}
	var out strings.Builder
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.200", "reaches 1.1", "0.800 to 0.900", "resnet18", "reported"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	r.Modules = r.Modules[1:]
	if err := r.Missed(); err != nil {
		t.Error(err)
	}
}
