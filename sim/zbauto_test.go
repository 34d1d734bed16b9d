package sim

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"pgregory.net/rapid"
)

// TestZeroBubbleAuto: with room for 2S-1 of M micro-batches on each of S stages, the list scheduler leaves no bubble in
// a steady step, if F = I = W and M >= 2S. The same is true of ZB-H2 (arXiv 2401.10241, Table 1). With room for S, the
// memory of ZB-H1, the order takes no longer than 1F1B. No worker ever holds more micro-batches than it has room for.
func TestZeroBubbleAuto(t *testing.T) {
	for _, S := range []int{2, 3, 4, 8} {
		for _, M := range []int{2 * S, 4 * S, 4*S + 1} {
			step := func(room int) float64 {
				p, err := family.Generate("zb-auto", schedule.Settings{Placement: straight(S), MicroBatches: M, Repeat: 6,
					Warmup: slices.Repeat([]int{room}, S)})
				if err == nil {
					p, err = lower.Lower(p, lower.Options{})
				}
				if err != nil {
					t.Fatal(err)
				}
				_, sum, err := Run(p, chunked(S, 1, 1, 1, 1), Options{})
				if err != nil {
					t.Fatal(err)
				}
				if held := slices.Max(sum.PeakActivations); held > room {
					t.Errorf("S=%d M=%d: %d held with room for %d", S, M, held, room)
				}
				return sum.StepS
			}
			exactly(t, step(2*S-1), 3*float64(M), "S=%d M=%d", S, M)
			if got := step(S); got > 3*float64(M+S-1)+1e-9 {
				t.Errorf("S=%d M=%d: in ZB-H1's memory it takes %v, 1F1B %v", S, M, got, 3*(M+S-1))
			}
			for room := 1; room < 2*S; room++ {
				step(room)
			}
		}
	}
}

// TestListSchedulerNeverSticks: for any placement and any room of at least one micro-batch, the order runs to its
// end within that room.
func TestListSchedulerNeverSticks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		s := schedule.Settings{MicroBatches: rapid.IntRange(1, 12).Draw(t, "m")}
		for w := range workers {
			s.Placement = append(s.Placement, []int{w})
		}
		for range rapid.IntRange(0, 8).Draw(t, "more") {
			s.Placement = slices.Insert(s.Placement, rapid.IntRange(0, len(s.Placement)).Draw(t, "at"),
				[]int{rapid.IntRange(0, workers-1).Draw(t, "worker")})
		}
		room := rapid.IntRange(1, 6).Draw(t, "room")
		s.Warmup = slices.Repeat([]int{room}, len(s.Placement))
		p, err := family.Generate("zb-auto", s)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := check.Check(p)
		if err != nil {
			t.Fatal(err)
		}
		for w, held := range rep.PeakActivations {
			if most := room * len(p.StagesOf(w)); held > most {
				t.Fatalf("worker %d holds %d chunks' activations with room for %d", w, held, most)
			}
		}
	})
}
