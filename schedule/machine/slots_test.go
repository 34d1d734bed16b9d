package machine_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// TestLeastSlotsOfDepths: in 1F1B with depths K, the least number of slots is half of the largest difference between
// neighbouring depths, rounded up. Stage i sends K_i forwards before it receives a gradient. Stage i+1 has then sent
// K_(i+1) - 1 of them on. Stage i+1 continues as long as the edge back to stage i has room for its gradients. With n
// slots stage i+1 can send n gradients, and receives one more forward with each. Another n forwards are in flight.
func TestLeastSlotsOfDepths(t *testing.T) {
	most := 0
	for seed := range uint64(500) {
		g := rand.New(rand.NewPCG(seed, 16))
		stages, m := 2+g.IntN(4), 1+g.IntN(16)
		depths, limit := make([]int, stages), m
		for i := range depths {
			depths[i] = 1 + g.IntN(limit)
			limit = depths[i]
		}
		p := generated(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: m,
			Warmup: depths,
			Repeat: 1 + g.IntN(2)})
		want := 1
		for i := range stages - 1 {
			want = max(want, (depths[i]-depths[i+1]+1)/2)
		}
		if got, err := machine.LeastSlots(p); got != want || err != nil {
			t.Fatalf("depths %v of %d micro-batches: %d slots, want %d: %v", depths, m, got, want, err)
		}
		most = max(most, want)
	}
	if most < 5 {
		t.Errorf("no depths needed more than %d", most)
	}
}

// TestLeastSlotsOfFamilies: one slot is enough for most orders, and two are enough for interleaved, zb-v and elastic.
// With one slot less, the error names the worker that waits for a slot. In looped BFS, the first worker sends all M
// micro-batches of a chunk round W workers before it receives the first one again. So, with n slots, n messages are in
// flight on each of W edges, and each worker except the first holds one.
func TestLeastSlotsOfFamilies(t *testing.T) {
	twice := map[string]bool{"interleaved": true, "zb-v": true, "elastic": true}
	tried := map[int]int{}
	for _, f := range family.All() {
		for _, workers := range []int{2, 3, 4, 8} {
			for _, m := range []int{4, 8, 12, 32} {
				for _, policy := range append([]schedule.Policy{""}, f.Policies...) {
					s := schedule.Settings{Placement: f.Placement(workers, 2), MicroBatches: m, Repeat: 3,
						Weights: policy}
					p, err := family.Generate(f.Name, s)
					if err != nil {
						continue
					}
					if p, err = lower.Lower(p, lower.Options{}); err != nil {
						t.Fatal(err)
					}
					got, err := machine.LeastSlots(p)
					want := 1
					switch {
					case f.Name == "bfs":
						want = max(1, m/workers)
					case twice[f.Name]:
						want = max(1, min(2, got))
					}
					if got != want || err != nil {
						t.Errorf("%s on %d workers, %d micro-batches: %d slots, want %d: %v", f.Name, workers, m,
							got, want, err)
					}
					tried[got]++
					if err := machine.CheckSlots(p, got); err != nil {
						t.Error(err)
					}
					if got == 1 {
						continue
					}
					var stall *machine.StallError
					if err := machine.CheckSlots(p, got-1); !errors.As(err, &stall) ||
						!slices.ContainsFunc(stall.Waits,
							func(w machine.Wait) bool { return w.Lack == machine.Slot }) {
						t.Errorf("%s with %d slots: %v", f.Name, got-1, err)
					}
				}
			}
		}
	}
	if tried[1] < 100 || tried[2] < 20 || tried[8] < 1 {
		t.Errorf("slots needed: %v", tried)
	}
}
