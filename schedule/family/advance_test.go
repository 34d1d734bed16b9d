package family

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"pgregory.net/rapid"
)

func TestAdvanceDepths(t *testing.T) {
	for _, c := range []struct {
		s, m, x int
		rule    AdvanceRule
		want    []int
	}{
		{4, 8, 0, Graded, []int{4, 3, 2, 1}},
		{4, 8, 1, Graded, []int{5, 4, 3, 1}}, // 4, 3, 2, 1 plus ceil(3/3), ceil(2/3), ceil(1/3), 0
		{4, 8, 2, Graded, []int{6, 5, 3, 1}}, // 4, 3, 2, 1 plus 2, ceil(4/3), ceil(2/3), 0
		{4, 8, 3, Graded, []int{7, 5, 3, 1}}, // DAPPLE's P_B depths
		{4, 8, 1, Printed, []int{5, 4, 3, 2}},
		{4, 8, 7, Printed, []int{8, 8, 8, 8}}, // AFAB
		{4, 1, 3, Graded, []int{1, 1, 1, 1}},  // AvgPipe's AWD: one micro-batch
		{2, 4, 1, Graded, []int{3, 1}},        // Fig. 7(c): three micro-batches on the first GPU
		{1, 4, 2, Graded, []int{3}},
	} {
		got, err := AdvanceDepths(c.s, c.m, c.x, c.rule)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d stages, %d micro-batches, %d in advance, %s: %v, %v; want %v", c.s, c.m, c.x, c.rule, got,
				err, c.want)
		}
	}
	for _, bad := range []func() ([]int, error){
		func() ([]int, error) { return AdvanceDepths(0, 1, 0, Graded) },
		func() ([]int, error) { return AdvanceDepths(2, 0, 0, Graded) },
		func() ([]int, error) { return AdvanceDepths(2, 4, -1, Graded) },
		func() ([]int, error) { return AdvanceDepths(2, 4, 1, "deep") },
	} {
		if k, err := bad(); err == nil {
			t.Errorf("it gave %v", k)
		}
	}
}

// TestAdvanceDegenerates: an advance of 0 is 1F1B. Under the printed rule, an advance of M-1 is AFAB, for M
// micro-batches.
func TestAdvanceDegenerates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stages, m := rapid.IntRange(1, 8).Draw(t, "stages"), rapid.IntRange(1, 20).Draw(t, "micro-batches")
		for _, c := range []struct {
			advance int
			rule    AdvanceRule
			family  string
		}{{0, Graded, "1f1b"}, {0, Printed, "1f1b"}, {m - 1, Printed, "afab"}} {
			k, err := AdvanceDepths(stages, m, c.advance, c.rule)
			if err != nil {
				t.Fatal(err)
			}
			s := schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: m}
			want, err := Generate(c.family, s)
			if err != nil {
				t.Fatal(err)
			}
			s.Warmup = k
			got, err := Generate("1f1b", s)
			if err != nil {
				t.Fatal(err)
			}
			if !samePart(got.Body, want.Body) {
				t.Fatalf("%d in advance (%s) is not %s:\n%s", c.advance, c.rule, c.family, got.Text())
			}
		}
	})
}

// TestAdvanceSettles uses a curve of step times over the advance. The controller settles where steps stop getting
// faster, or where memory ends. If it has patience, it does not stop at the first advance with slower steps, but also
// tries some greater ones.
func TestAdvanceSettles(t *testing.T) {
	for _, c := range []struct {
		name     string
		times    []float64
		fits     int // number of advances that fit the memory
		patience int
		want     int
	}{
		{"it stops getting faster", []float64{10, 9, 8, 8, 7}, 9, 0, 2},
		{"1F1B is best", []float64{10, 11, 9}, 9, 0, 0},
		{"memory ends", []float64{10, 9, 8, 7}, 2, 0, 2},
		{"no memory for any", []float64{10, 9}, 0, 0, 0},
		{"a bump", []float64{10, 9, 9.5, 8, 8.5, 8.5, 7}, 9, 2, 3},
		{"all in advance", []float64{10, 9, 8, 7, 6, 5}, 9, 0, 4},
	} {
		a := Advance{Stages: 2, MicroBatches: 6, Patience: c.patience}
		for range 20 {
			k, settled := a.Next(c.times[a.now], a.now < c.fits)
			if settled {
				if want, _ := AdvanceDepths(2, 6, c.want, Graded); !slices.Equal(k, want) {
					t.Errorf("%s: it settled on %v, want %v", c.name, k, want)
				}
				again, _ := a.Next(0, true)
				if !slices.Equal(again, k) {
					t.Errorf("%s: it moved on to %v", c.name, again)
				}
				break
			}
		}
		if !a.settled {
			t.Errorf("%s: it never settles", c.name)
		}
	}
	if k, settled := (&Advance{Stages: 2, MicroBatches: 0}).Next(1, true); k != nil || !settled {
		t.Errorf("without micro-batches it gave %v", k)
	}
	if _, err := (&Advance{Stages: 2, MicroBatches: 4, MinGain: 1}).Depths(); err == nil {
		t.Error("a gain of all of a step passed")
	}
}
