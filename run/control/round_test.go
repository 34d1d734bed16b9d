package control

import (
	"slices"
	"testing"
)

// Two workers train at their own pace, the second ten times as fast as the first. Each step is reported to take half of
// the time of its round, in whatever order the steps end, and also after a pause. No step takes 0 s.
func TestWhatAStepTakesOfWorkersThatGoTheirOwnWay(t *testing.T) {
	progress := NewProgress([][]int{{0, 1, 2}}, 1)
	var took []float64
	add := func(step int, startS, endS float64) {
		t.Helper()
		f, whole, err := progress.Add(0, Step{Step: step, StartS: startS, EndS: endS, Workers: make([]Did, 3)}, 0)
		for ; whole; f, whole = progress.Next() {
			took = append(took, f.TookS)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	one := func(int) int { return 1 }
	progress.Expect(0, 2, one)
	add(1, 0, 1)
	add(3, 1, 2)
	add(0, 0, 10)
	add(5, 2, 3)
	add(2, 10, 20)
	add(4, 20, 32)
	progress.Expect(6, 2, one) // the next Program, after an evaluation
	add(6, 100, 110)
	add(7, 100, 101)
	if want := []float64{5, 5, 5, 5, 6, 6, 5, 5}; !slices.Equal(took, want) {
		t.Errorf("steps took %v s; want %v", took, want)
	}
	if progress.TookS != 42 {
		t.Errorf("all took %v s; want 42", progress.TookS)
	}
}
