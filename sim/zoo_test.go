package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim/memory"
)

// chunked returns the costs of a step with v chunks on each worker. For all chunks of one micro-batch together, a
// worker takes f for forwards, i for input gradients and w for weight gradients.
func chunked(stages, v int, f, i, w float64) Costs {
	c := Costs{}
	for range stages {
		x := float64(v)
		c.Stages = append(c.Stages, []StageCost{{ForwardS: f / x, BackwardS: (i + w) / x, InputS: i / x, WeightS: w / x,
			Held: memory.Held{SavedBytes: 1}}})
	}
	return c
}

func simulate(t *testing.T, order string, placement [][]int, m, repeat int, c Costs) Summary {
	t.Helper()
	p, err := family.Generate(order, schedule.Settings{Placement: placement, MicroBatches: m, Repeat: repeat})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, sum, err := Run(p, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestZeroBubbleSteps checks the times of a step of M micro-batches on S stages. They are those of arXiv 2401.10241,
// Table 1, with F, I and W for its T_F, T_B and T_W:
//
//	zb-h1  M(F+I+W) + (S-1)(F+I-W)     for W <= I and W <= F, M >= S
//	zb-h2  M(F+I+W) + (S-1)(F+I-2W)    for W <= I and 2W <= F+I, M >= 2S
//
// A steady step takes exactly that time in this range. With equal times a steady step of ZB-H2 has no bubble.
func TestZeroBubbleSteps(t *testing.T) {
	for _, S := range []int{2, 3, 4, 8} {
		for _, M := range []int{2 * S, 4 * S, 2*S + 1} {
			for _, x := range [][3]float64{{1, 1, 1}, {1, 1, 0.5}, {1, 1.2, 0.8}, {1, 1.5, 1}} {
				F, I, W := x[0], x[1], x[2]
				ideal := float64(M) * (F + I + W)
				for name, bubble := range map[string]float64{"zb-h1": F + I - W, "zb-h2": F + I - 2*W} {
					sum := simulate(t, name, straight(S), M, 1, chunked(S, 1, F, I, W))
					want := ideal + float64(S-1)*bubble
					// A single step also lasts until the last stage ends, which begins S-1 forwards late.
					if alone := max(want, ideal+float64(S-1)*F); math.Abs(sum.StepS-alone) > 1e-9 {
						t.Errorf("%s S=%d M=%d F,I,W=%v: step %v, want %v", name, S, M, x, sum.StepS, alone)
					}
					steady := simulate(t, name, straight(S), M, 6, chunked(S, 1, F, I, W))
					if math.Abs(steady.StepS-want) > 1e-9 {
						t.Errorf("%s S=%d M=%d F,I,W=%v: steady step %v, want %v", name, S, M, x, steady.StepS, want)
					}
				}
			}
		}
	}
}

// TestInterleavedSteps: on p workers with v chunks each, and without transfer times, M micro-batches take M(F+B) +
// (p-1)(F+B)/v (arXiv 2104.04473, §2.2). This holds for interleaved 1F1B and looped BFS if M is a multiple of p.
func TestInterleavedSteps(t *testing.T) {
	for _, p := range []int{2, 3, 4, 8} {
		for _, v := range []int{2, 3, 4} {
			for _, M := range []int{p, 2 * p, 4 * p} {
				for _, B := range []float64{1, 2} {
					for _, name := range []string{"interleaved", "bfs"} {
						sum := simulate(t, name, schedule.Wrap(p, v), M, 1, chunked(p*v, v, 1, B/2, B/2))
						if want := (float64(M) + float64(p-1)/float64(v)) * (1 + B); math.Abs(sum.StepS-want) > 1e-9 {
							t.Errorf("%s p=%d v=%d M=%d B=%v: step %v, want %v", name, p, v, M, B, sum.StepS, want)
						}
					}
				}
			}
		}
	}
}

// TestInterleavedPaysForLatency: with transfers, BFS loses less than interleaving. For 16 micro-batches on 8 workers
// with 4 chunks each, F = 1, B = 2 and transfers of 0.2, the bubble of BFS is 8.05 and that of interleaving 17.65 time
// units. These numbers are from LANDSCAPE's independent simulation.
func TestInterleavedPaysForLatency(t *testing.T) {
	for name, bubble := range map[string]float64{"interleaved": 17.65, "bfs": 8.05} {
		c := chunked(32, 4, 1, 1, 1)
		c.Transfer = func(int, int, int64) (float64, float64) { return 0.2, 0 }
		sum := simulate(t, name, schedule.Wrap(8, 4), 16, 1, c)
		if got := sum.StepS - 16*3; math.Abs(got-bubble) > 1e-9 {
			t.Errorf("%s: bubble %v, want %v", name, got, bubble)
		}
	}
}

// TestChimeraBubble: the bubble is (p-2)/(2M+p-2) on p workers, if F = B and the number M of micro-batches is a
// multiple of p (arXiv 2107.06925, §3).
func TestChimeraBubble(t *testing.T) {
	for _, p := range []int{2, 4, 6, 8} {
		for _, M := range []int{p, 2 * p, 4 * p} {
			sum := simulate(t, "chimera", schedule.Bidirectional(p), M, 1, chunked(p, 1, 1, 0.5, 0.5))
			if want := float64(p-2) / float64(2*M+p-2); math.Abs(sum.Bubble-want) > 1e-9 {
				t.Errorf("p=%d M=%d: bubble %v, want %v", p, M, sum.Bubble, want)
			}
		}
	}
}

// TestVees: if F = I = W, ZB-V has no bubble in a steady step. V-Half has at most half of 1F1B's bubble. V-Min has at
// most two thirds of 1F1B's bubble, plus one slot (arXiv 2405.15362, Table 1).
func TestVees(t *testing.T) {
	for _, p := range []int{2, 3, 4, 5, 6, 8} {
		for _, M := range []int{2 * p, 4 * p, 4*p + 1} {
			for name, most := range map[string]float64{"zb-v": 0, "v-half": float64(p-1) * 3 / 2, "v-min": float64(p-1)*2 + 1} {
				sum := simulate(t, name, schedule.Vee(p), M, 6, chunked(2*p, 2, 1, 1, 1))
				if bubble := sum.StepS - 3*float64(M); bubble > most+1e-9 {
					t.Errorf("%s: p=%d M=%d: bubble %v a step, want %v at most (1F1B: %v)", name, p, M, bubble, most, 3*float64(p-1))
				}
			}
		}
	}
}

func ExampleRun_zeroBubble() {
	p, _ := family.Generate("zb-v", schedule.Settings{Placement: schedule.Vee(4), MicroBatches: 8, Repeat: 6})
	p, _ = lower.Lower(p, lower.Options{})
	_, sum, _ := Run(p, chunked(8, 2, 1, 1, 1), Options{})
	fmt.Printf("%.0f slots for 8 x 3\n", sum.StepS)
	// Output: 24 slots for 8 x 3
}
