package avgpipe

import (
	"slices"
	"testing"
)

// Every baseline is there; AvgPipe never holds more than the one it is compared with, and where
// it has the baseline's own setting to choose it is no slower.
func TestAtEqualMemory(t *testing.T) {
	w := workload()
	baselines, err := w.Baselines(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range baselines {
		names = append(names, b.Name)
		if u := b.Utilisation(); !(u > 0 && u <= 1) || !b.Fits {
			t.Errorf("%s computes for %v of the time; fits: %v", b.Name, u, b.Fits)
		}
	}
	if want := []string{"data parallelism", "GPipe", "DAPPLE", "PipeDream", "PipeDream-2BW"}; !slices.Equal(names, want) {
		t.Fatalf("baselines %v, want %v", names, want)
	}
	grid, err := Grid(w.Batch, w.Profile.Sizes("cpu"), 3)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := w.AtEqualMemory(t.Context(), grid, baselines)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.AvgPipe == nil {
			t.Errorf("nothing of AvgPipe's fits the %d bytes of %s", slices.Max(r.Predicted.MemoryBytes), r.Name)
			continue
		}
		if r.AvgPipe.Peak() > slices.Max(r.Predicted.MemoryBytes) {
			t.Errorf("%s holds %d bytes, AvgPipe(%s) %d", r.Name, slices.Max(r.Predicted.MemoryBytes), r.AvgPipe.At,
				r.AvgPipe.Peak())
		}
		if (r.Name == "GPipe" || r.Name == "DAPPLE") && r.Speedup() < 1/(1+closeEnough) {
			t.Errorf("AvgPipe is %v times as fast as %s, which it can be itself", r.Speedup(), r.Name)
		}
	}
	if _, err := w.Baselines(t.Context(), 5); err == nil {
		t.Error("5 micro-batches of 16 samples are not refused")
	}
}

// AFAB is the deepest and holds most, 1F1B least (section 7.2).
func TestSchedulesOfASetting(t *testing.T) {
	w := workload()
	one, advance, all, err := w.Schedules(t.Context(), Degrees{8, 1})
	if err != nil {
		t.Fatal(err)
	}
	if one.Peak() > advance.Peak() || advance.Peak() > all.Peak() || one.Peak() == all.Peak() {
		t.Errorf("1F1B holds %d, advance %d, AFAB %d", one.Peak(), advance.Peak(), all.Peak())
	}
	if advance.StepS > one.StepS*(1+1e-9) || advance.StepS > all.StepS*(1+fasterBy+1e-9) {
		t.Errorf("1F1B takes %v s, advance %v, AFAB %v", one.StepS, advance.StepS, all.StepS)
	}
}
