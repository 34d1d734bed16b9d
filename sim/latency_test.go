package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// The tests of this file add transfers of time SR in each direction to orders from papers that leave transfers out.
// Most compare the paper's closed form, plus a term of SR, with a simulation; the two are equal. SR does not occupy the
// link. Outside of the stated range of such a test the order stalls and the step is longer.

// latency returns the costs of chunked stages with transfers of time SR.
func latency(stages, v int, f, i, w, sr float64) Costs {
	c := chunked(stages, v, f, i, w)
	c.Transfer = func(int, int, int64) (float64, float64) { return sr, 0 }
	return c
}

// ratios holds values of F, I and W for which the formulas of ZB-H1 and ZB-H2 hold. They require W <= I, W <= F and 2W
// <= F+I.
var ratios = [][3]float64{{1, 1, 1}, {1, 1, 0.5}, {1, 1.2, 0.8}, {1, 1.5, 1}, {2, 2, 1}, {1, 2, 1}}

func exactly(t *testing.T, got, want float64, format string, args ...any) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// TestZeroBubbleLatency checks a step of M micro-batches on S stages with transfers of SR seconds. F, I and W are the
// times of a forward, an input gradient and a weight gradient. ZB-H1 and ZB-H2 (arXiv 2401.10241, Table 1) then take,
// in a steady step,
//
//	zb-h1  M(F+I+W) + (S-1)(F+I-W) + 4(S-1)SR     while 2 SR <= W
//	zb-h2  M(F+I+W) + (S-1)(F+I-2W) + 2(S-1)SR    while 2 SR <= F+I
//
// for M >= 2S. A weight gradient hides two transfers. With S micro-batches in flight, transfers over each of the S-1
// boundaries are visible twice in each direction. A single step takes at least (S-1)(F+SR) more than its work, because
// the last stage begins that late.
func TestZeroBubbleLatency(t *testing.T) {
	for _, S := range []int{2, 3, 4, 8} {
		for _, M := range []int{2 * S, 4 * S, 2*S + 1} {
			for _, x := range ratios {
				F, I, W := x[0], x[1], x[2]
				work, s1 := float64(M)*(F+I+W), float64(S-1)
				for _, part := range []float64{0.25, 0.5, 1} {
					what := fmt.Sprintf("S=%d M=%d F,I,W=%v, %v of the range", S, M, x, part)
					SR := part * W / 2
					h1 := work + s1*(F+I-W) + 4*s1*SR
					exactly(t, simulate(t, "zb-h1", straight(S), M, 1, latency(S, 1, F, I, W, SR)).StepS, max(h1, work+s1*(F+SR)),
						"zb-h1 alone %s", what)
					exactly(t, simulate(t, "zb-h1", straight(S), M, 6, latency(S, 1, F, I, W, SR)).StepS, h1, "zb-h1 %s", what)
					SR = part * (F + I) / 2
					h2 := work + s1*(F+I-2*W) + 2*s1*SR
					exactly(t, simulate(t, "zb-h2", straight(S), M, 1, latency(S, 1, F, I, W, SR)).StepS, max(h2, work+s1*(F+SR)),
						"zb-h2 alone %s", what)
					exactly(t, simulate(t, "zb-h2", straight(S), M, 6, latency(S, 1, F, I, W, SR)).StepS, h2, "zb-h2 %s", what)
				}
			}
		}
	}
}

// TestZeroBubbleVLatency: transfers of SR add (6(p-1)-2) SR to a steady step of ZB-V (arXiv 2405.15362) on p workers.
// This is true if F = I = W, with M >= 2p micro-batches and SR <= F/4, half of the time of a chunk's forward.
func TestZeroBubbleVLatency(t *testing.T) {
	for _, p := range []int{2, 3, 4, 8} {
		for _, M := range []int{2 * p, 4 * p, 4*p + 1} {
			for _, F := range []float64{1, 2} {
				for _, part := range []float64{0, 0.2, 0.5, 1} {
					SR := part * F / 4
					sum := simulate(t, "zb-v", schedule.Vee(p), M, 6, latency(2*p, 2, F, F, F, SR))
					exactly(t, sum.StepS, 3*F*float64(M)+float64(6*(p-1)-2)*SR, "p=%d M=%d F=%v SR=%v", p, M, F, SR)
				}
			}
		}
	}
}

// TestInterleavedLatency: on p workers with v chunks each, M micro-batches take M(F+B) + (p-1)(F+B)/v without transfers
// (arXiv 2104.04473, §2.2). F and B are the forward and backward of all chunks of a worker. Transfers of SR add
//
//	interleaved  2(pv-1)SR    while SR <= F/v and SR <= B/v, M a multiple of p
//	bfs          2(p-1)SR     while SR <= (M/p-1) F/v and SR <= (M/p-1) B/v
//
// In the interleaved order, every transfer on a micro-batch's path adds to the time. In the breadth-first order, only
// the transfers of one chunk do.
func TestInterleavedLatency(t *testing.T) {
	for _, p := range []int{2, 3, 4, 8} {
		for _, v := range []int{2, 4} {
			for _, M := range []int{2 * p, 4 * p, 2*p + 1} {
				for _, x := range ratios {
					F, B := x[0], x[1]+x[2]
					base := float64(M)*(F+B) + float64(p-1)*(F+B)/float64(v)
					for _, part := range []float64{0.25, 1} {
						what := fmt.Sprintf("p=%d v=%d M=%d F=%v B=%v", p, v, M, F, B)
						SR := part * min(F, B) / float64(v)
						if M%p == 0 {
							exactly(t, simulate(t, "interleaved", schedule.Wrap(p, v), M, 1, latency(p*v, v, x[0], x[1], x[2], SR)).StepS,
								base+float64(2*(p*v-1))*SR, "interleaved %s SR=%v", what, SR)
						}
						SR = part * (float64(M)/float64(p) - 1) * min(F, B) / float64(v)
						exactly(t, simulate(t, "bfs", schedule.Wrap(p, v), M, 1, latency(p*v, v, x[0], x[1], x[2], SR)).StepS,
							base+float64(2*(p-1))*SR, "bfs %s SR=%v", what, SR)
					}
				}
			}
		}
	}
}

// TestChimeraLatency checks a step of Chimera (arXiv 2107.06925) with M micro-batches on p workers. F and B are the
// times of a stage's forward and backward, SR is that of a transfer. For even p, M a multiple of p, and B >= F, it
// takes
//
//	M(F+B) + (p-2)F + (M/p)(p-2)(B-F) + c SR,  c = 2M(1-1/p) + max(0, p-3)
//
// if SR = 0, or if F = B and SR is at most 2F. Each unit of p micro-batches adds the term with the difference of B and
// F.
func TestChimeraLatency(t *testing.T) {
	for _, p := range []int{2, 4, 6, 8} {
		for _, M := range []int{p, 2 * p, 4 * p} {
			for _, F := range []float64{1, 2} {
				for _, over := range []float64{1, 1.5, 2, 3} {
					B := over * F
					sum := simulate(t, "chimera", schedule.Bidirectional(p), M, 1, latency(p, 1, F, B/2, B/2, 0))
					exactly(t, sum.StepS, float64(M)*(F+B)+float64(p-2)*F+float64(M/p*(p-2))*(B-F), "p=%d M=%d F=%v B=%v", p, M, F, B)
				}
				for _, SR := range []float64{0.125, 0.5 * F, F, 2 * F} {
					sum := simulate(t, "chimera", schedule.Bidirectional(p), M, 1, latency(p, 1, F, F/2, F/2, SR))
					c := 2*float64(M)*(1-1/float64(p)) + float64(max(0, p-3))
					exactly(t, sum.StepS, float64(2*M+p-2)*F+c*SR, "p=%d M=%d F=B=%v SR=%v", p, M, F, SR)
				}
			}
		}
	}
}

// TestStreamLatency: on S stages, PipeDream's straight stream (§3.2) of N minibatches takes as long as 1F1B of N
// micro-batches, SNO in BaPipe's Table II. A long stream takes F+B+2 SR(1-1/S) for each minibatch, for every transfer
// time SR tried. Stage i keeps S-i versions under stash (§3.3).
func TestStreamLatency(t *testing.T) {
	for _, S := range []int{2, 3, 4, 8} {
		for _, N := range []int{S, 2 * S, 4 * S, 2*S + 1} {
			for _, B := range []float64{1, 2} {
				for _, SR := range []float64{0, 0.25, 1, 3} {
					for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest} {
						p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: straight(S), MicroBatches: 1, Repeat: N,
							Weights: policy})
						if err == nil {
							p, err = lower.Lower(p, lower.Options{})
						}
						if err != nil {
							t.Fatal(err)
						}
						_, sum, err := Run(p, Uniform(S, 1, B, SR), Options{})
						if err != nil {
							t.Fatal(err)
						}
						c := math.Ceil(float64(N-1) / float64(S))
						exactly(t, sum.EndS, float64(N+S-1)*(1+B)+(float64(S+N-2)-c)*2*SR, "%s S=%d N=%d B=%v SR=%v", policy, S, N, B, SR)
						if policy != schedule.Stash || N < 2*S {
							continue // a short stream drains before the first stage has seen its newest weights
						}
						for _, h := range p.Holdings() {
							if want := S - h.Stage; h.Versions != want {
								t.Errorf("S=%d N=%d: stage %d keeps %d versions, want %d", S, N, h.Stage, h.Versions, want)
							}
						}
					}
				}
			}
		}
	}
}

// TestDeeperOrdersBeyondTheirRange repeats LANDSCAPE's independent simulation: 8 stages, 32 micro-batches, F = 1, B =
// 2. BaPipe's SO formula (Table II) gives 145 with transfers of SR = 2 and 159 with SR = 3. In the simulation, both SO
// and P_B take 159 and 201. GPipe takes exactly the time of its own formula.
func TestDeeperOrdersBeyondTheirRange(t *testing.T) {
	for SR, want := range map[float64]float64{2: 159, 3: 201} {
		for _, name := range []string{"so", "pb"} {
			exactly(t, simulate(t, name, straight(8), 32, 1, latency(8, 1, 1, 1, 1, SR)).StepS, want, "%s at SR=%v", name, SR)
		}
		exactly(t, simulate(t, "afab", straight(8), 32, 1, latency(8, 1, 1, 1, 1, SR)).StepS, (32+7)*3+14*SR, "afab at SR=%v",
			SR)
	}
}

// TestPBNeedsOneLess: DAPPLE's P_B is as fast as BaPipe's SO and holds one micro-batch less on every stage. This is
// true while two transfers take at most F+B (LANDSCAPE §C.3). There are at least twice as many micro-batches as stages,
// so that no depth is limited by their number.
func TestPBNeedsOneLess(t *testing.T) {
	for _, S := range []int{2, 3, 4, 8} {
		for _, M := range []int{2 * S, 4 * S, 4*S + 1} {
			for _, B := range []float64{1, 2, 3} {
				for _, SR := range []float64{0, 0.25, (1 + B) / 2} {
					c := latency(S, 1, 1, B/2, B/2, SR)
					pb, so := simulate(t, "pb", straight(S), M, 1, c), simulate(t, "so", straight(S), M, 1, c)
					exactly(t, pb.StepS, so.StepS, "S=%d M=%d B=%v SR=%v", S, M, B, SR)
					for w := range S {
						if pb.PeakActivations[w] != so.PeakActivations[w]-1 {
							t.Errorf("S=%d M=%d: stage %d holds %d under P_B and %d under SO", S, M, w, pb.PeakActivations[w],
								so.PeakActivations[w])
						}
					}
				}
			}
		}
	}
}

// TestAdvanceForward varies AvgPipe's advance (§4.2) on 8 stages with 32 micro-batches, F = 1, B = 2 (LANDSCAPE §C.3).
// It looks for the smallest advance over 1F1B that reaches AFAB's time, with transfers of SR. With the same advance on
// every stage but the last, an advance of 11 is needed at SR = 0.1, and of 21 at SR = 0.25. With 11, the first stage
// holds 19 micro-batches. Advances that differ by stage are much smaller. If they fall evenly to the last stage,
// rounded up, 4 on the first stage is enough; LANDSCAPE has 6, for a grading that it does not describe. If stage i has
// P_B's advance of 7-i, but at most 3, the first stage holds 11 micro-batches.
func TestAdvanceForward(t *testing.T) {
	const p, M = 8, 32
	least := func(SR float64, depth func(extra, i int) int) int {
		c := latency(p, 1, 1, 1, 1, SR)
		afab := simulate(t, "afab", straight(p), M, 1, c).StepS
		for extra := range M {
			s := schedule.Settings{Placement: straight(p), MicroBatches: M}
			for i := range p {
				s.Warmup = append(s.Warmup, min(M, depth(extra, i)))
			}
			program, err := family.Generate("1f1b", s)
			if err == nil {
				program, err = lower.Lower(program, lower.Options{})
			}
			if err != nil {
				t.Fatal(err)
			}
			_, sum, err := Run(program, c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if sum.StepS <= afab+1e-9 {
				return extra
			}
		}
		return M
	}
	same := func(extra, i int) int {
		if i == p-1 {
			return 1
		}
		return p - i + extra
	}
	graded := func(extra, i int) int { return p - i + (extra*(p-1-i)+p-2)/(p-1) }
	capped := func(extra, i int) int { return p - i + min(extra, p-1-i) }
	if got := least(0.1, same); got != 11 {
		t.Errorf("the same number on every stage: %d more, want 11", got)
	}
	if got := least(0.25, same); got != 21 {
		t.Errorf("at SR = 0.25: %d more, want 21", got)
	}
	if got := least(0.1, graded); got != 4 {
		t.Errorf("by stage: %d more, want 4", got)
	}
	if got := least(0.1, capped); got != 3 {
		t.Errorf("as many as P_B has, up to a bound: %d more, want 3", got)
	}
}
