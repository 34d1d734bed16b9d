package family

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// zoo returns the placements, on n workers, of orders with split backwards, chunks or two directions.
func zoo(n int) map[string][][]int {
	return map[string][][]int{
		"zb-h1": schedule.Replicated(n, 1), "zb-h2": schedule.Replicated(n, 1), "interleaved": schedule.Wrap(n, 2),
		"bfs":  schedule.Wrap(n, 3),
		"zb-v": schedule.Vee(n), "v-half": schedule.Vee(n), "v-min": schedule.Vee(n),
		"chimera": schedule.Bidirectional(n),
	}
}

// TestZooPassesCheck: every order can run to its end for any number of micro-batches that its family takes.
func TestZooPassesCheck(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 8} {
		for name, placement := range zoo(n) {
			for _, m := range []int{1, 2, 3, n, 2 * n, 2*n + 1, 4 * n} {
				p, err := Generate(name, schedule.Settings{Placement: placement, MicroBatches: m, Repeat: 2})
				if err != nil {
					if name == "chimera" && (n%2 == 1 || m%2 == 1) || name == "interleaved" && m%n != 0 {
						continue
					}
					t.Errorf("%s on %d workers, %d micro-batches: %v", name, n, m, err)
					continue
				}
				if _, err := check.Check(p); err != nil {
					t.Errorf("%s on %d workers, %d micro-batches: %v", name, n, m, err)
				}
			}
		}
	}
}

// TestZooPeaks checks the largest number of chunks whose activations each worker holds at once. There are p workers, v
// chunks on each, and M >= 2p micro-batches:
//
//	zb-h1        p on every stage; zb-h2 2p-1      (arXiv 2401.10241)
//	interleaved  pv + p-1 on the first worker      (arXiv 2104.04473)
//	bfs          M v
//	zb-v         2p halves, on every worker; v-half 2 floor((p+2)/2), v-min 2 floor((p+4)/3) (arXiv 2405.15362)
//	chimera      from p/2+1 on the outermost workers to p on the innermost (arXiv 2107.06925)
func TestZooPeaks(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		for _, m := range []int{2 * n, 4 * n} {
			for name, placement := range zoo(n) {
				if name == "chimera" && n%2 == 1 {
					continue
				}
				p, err := Generate(name, schedule.Settings{Placement: placement, MicroBatches: m})
				if err != nil {
					t.Fatal(err)
				}
				rep, err := check.Check(p)
				if err != nil {
					t.Fatal(err)
				}
				least, most := slices.Min(rep.PeakActivations), slices.Max(rep.PeakActivations)
				want := map[string]int{
					"zb-h1": n, "zb-h2": 2*n - 1, "interleaved": 2*n + n - 1, "bfs": 3 * m,
					"zb-v": 2 * n, "v-half": (n + 2) / 2 * 2, "v-min": (n + 4) / 3 * 2, "chimera": n,
				}[name]
				if most != want {
					t.Errorf("%s on %d workers, %d micro-batches: %v held, want %d at most", name, n, m,
						rep.PeakActivations, want)
				}
				if same := name == "zb-h1" || name == "zb-h2" || name == "bfs" || name == "zb-v"; same &&
					least != most {
					t.Errorf("%s on %d workers: %v held, want as many on each", name, n, rep.PeakActivations)
				}
				if name == "chimera" && least != n/2+1 {
					t.Errorf("chimera on %d workers: %v held, want %d at least", n, rep.PeakActivations, n/2+1)
				}
				if name == "interleaved" && rep.PeakActivations[0] != most {
					t.Errorf("interleaved on %d workers: %v held, want the most on the first", n, rep.PeakActivations)
				}
			}
		}
	}
}

func TestZooRefusals(t *testing.T) {
	for _, c := range []struct {
		family string
		s      schedule.Settings
		want   string
	}{
		{"interleaved", schedule.Settings{Placement: schedule.Wrap(2, 2), MicroBatches: 3},
			"3 micro-batches on 2 workers; give a multiple"},
		{"interleaved", schedule.Settings{Placement: schedule.Replicated(4, 1), MicroBatches: 4}, "two at least"},
		{"bfs", schedule.Settings{Placement: schedule.Vee(2), MicroBatches: 4}, "stage 2 is on workers [1]"},
		{"zb-v", schedule.Settings{Placement: schedule.Wrap(2, 2), MicroBatches: 4}, "worker i holds stages i and 3-i"},
		{"v-min", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 4}, "a V has two"},
		{"chimera", schedule.Settings{Placement: schedule.Bidirectional(2), MicroBatches: 3}, "give an even number"},
		{"chimera", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2},
			"stage s lies on workers s and 1-s"},
		{"chimera", schedule.Settings{Placement: schedule.Bidirectional(3), MicroBatches: 2},
			"3 stages; two directions"},
		{"zb-h1", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2, Warmup: []int{1, 2}},
			"depths must not grow"},
		{"zb-h2", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2, Weights: schedule.Stash},
			`weight policy "stash"`},
	} {
		if _, err := Generate(c.family, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to say %q", c.family, err, c.want)
		}
	}
}
