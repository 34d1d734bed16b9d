package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestBaPipeTableI: on devices that transfer while they compute, 1F1B-AS and FBP-AS take (M+N-1)(F+B), with a bubble of
// (N-1)/(M+N-1), for M micro-batches on N stages. A micro-batch has features of size a. Stage i, counted from 1, holds
// (N-i+1)a with 1F1B-AS and 2(N-i+1)a with FBP-AS. Links need the bandwidth of the table's last row: a/F for 1F1B-AS,
// and 2a/(F+B) in both directions together for FBP-AS. Here each direction has at least a/F, which the first forwards
// of FBP-AS need.
func TestBaPipeTableI(t *testing.T) {
	for _, N := range []int{2, 3, 4, 8} {
		for _, M := range []int{N, 2 * N, 4 * N, 2*N + 1} {
			for _, fb := range [][2]float64{{1, 1}, {1, 2}, {2, 3}} {
				F, B := fb[0], fb[1]
				for _, link := range []float64{0, 0.5, 1} { // transfer time as a multiple of F
					for name, factor := range map[string]int{"1f1b-as": 1, "fbp-as": 2} {
						c := streaming(N, F, B, link*F)
						_, sum, err := Run(program(t, name, N, M, 1), c, Options{})
						if err != nil {
							t.Fatal(err)
						}
						what := fmt.Sprintf("%s N=%d M=%d F=%v B=%v transfer=%v", name, N, M, F, B, link*F)
						if want := float64(M+N-1) * (F + B); math.Abs(sum.StepS-want) > 1e-9 {
							t.Errorf("%s: step %v, want %v", what, sum.StepS, want)
						}
						if want := float64(N-1) / float64(M+N-1); math.Abs(sum.Bubble-want) > 1e-9 {
							t.Errorf("%s: bubble %v, want %v", what, sum.Bubble, want)
						}
						for w, got := range sum.PeakActivations {
							if want := min(factor*(N-w), M); got != want {
								t.Errorf("%s: stage %d holds %d, want %d", what, w+1, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// streaming returns costs of uniform stages whose messages take `link` seconds and are sent while they are computed.
func streaming(stages int, forwardS, backwardS, link float64) Costs {
	return Streaming(Uniform(stages, forwardS, backwardS, 0), link)
}

// TestBaPipeTableIBandwidths: with less than Table I's bandwidth the pipeline slows down. For 1F1B-AS, messages take 10
// % longer than at a/F, where a is the size of a micro-batch's features. For FBP-AS, both directions share one link. At
// 2a/(F+B) it loses little. It loses more if messages take 10 % longer.
func TestBaPipeTableIBandwidths(t *testing.T) {
	const N, M, F, B = 4, 64, 1.0, 1.0
	ideal := float64(M+N-1) * (F + B)
	slow := streaming(N, F, B, 1.1*F)
	_, sum, err := Run(program(t, "1f1b-as", N, M, 1), slow, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sum.StepS < 1.01*ideal {
		t.Errorf("1F1B-AS below a/F takes %v, the table says that it takes over %v", sum.StepS, ideal)
	}
	for _, by := range []float64{1, 1.1} {
		shared := streaming(N, F, B, by*(F+B)/2)
		shared.Links = func(from, to int) [][2]int { return [][2]int{{min(from, to), max(from, to)}} }
		_, sum, err = Run(program(t, "fbp-as", N, M, 1), shared, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if took := sum.StepS > 1.05*ideal; took != (by > 1) {
			t.Errorf("FBP-AS on one link each of %v times what 2a/(F+B) takes: %v, ideal %v", by, sum.StepS, ideal)
		}
	}
}

// TestBaPipeTableIIMemory: on stage i of N, counted from 1, SNO holds (N-i+1)a and SO 2(N-i+1)a, with a the size of a
// micro-batch's features. TestKnownStepTimes checks the times and bubbles of Table II.
func TestBaPipeTableIIMemory(t *testing.T) {
	for _, N := range []int{2, 3, 4, 8} {
		for _, M := range []int{N, 2 * N, 4 * N, 2*N + 1} {
			for name, factor := range map[string]int{"sno": 1, "so": 2} {
				_, sum, err := Run(program(t, name, N, M, 1), Uniform(N, 1, 2, 0.5), Options{})
				if err != nil {
					t.Fatal(err)
				}
				for w, got := range sum.PeakActivations {
					if want := min(factor*(N-w), M); got != want {
						t.Errorf("%s N=%d M=%d: stage %d holds %d, want %d", name, N, M, w+1, got, want)
					}
				}
			}
		}
	}
}

// TestPipeDreamStream: PipeDream's order (§3.2) keeps every worker busy once the pipeline is full. N minibatches
// through n uniform stages without transfer time take (N+n-1)(F+B), and a steady step takes F+B. Stage i of n,
// counted from 1, holds n-i+1 copies of its weights and n-i+1 minibatches (§3.3).
func TestPipeDreamStream(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		for _, F := range []float64{0.5, 1, 2} {
			N := 6*n + 1
			p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: straight(n), MicroBatches: 1, Repeat: N})
			if err == nil {
				p, err = lower.Lower(p, lower.Options{})
			}
			if err != nil {
				t.Fatal(err)
			}
			c := Uniform(n, F, 1, 0)
			const weights = 1000
			for s := range c.Stages {
				k := &c.Stages[s][0]
				k.FixedBytes, k.WeightBytes, k.ParameterBytes = weights, weights, weights
			}
			_, sum, err := Run(p, c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if want := float64(N+n-1) * (F + 1); math.Abs(sum.EndS-want) > 1e-9 || math.Abs(sum.StepS-(F+1)) > 1e-9 {
				t.Errorf("n=%d F=%v: ends at %v after steps of %v, want %v and %v", n, F, sum.EndS, sum.StepS, want, F+1)
			}
			for w, bytes := range sum.PeakBytes {
				// The copies of the weights, one gradient, and one byte for each other minibatch in flight.
				if want := int64((n-w)*weights + weights + n - w - 1); bytes != want {
					t.Errorf("n=%d: stage %d holds %d bytes, want %d", n, w+1, bytes, want)
				}
			}
		}
	}
}

// TestPipeDreamRoundRobin has the two stages of PipeDream's Fig. 8. The first stage takes r times as long as the
// second, and has r replicas, which take turns. So both stages can end a minibatch every F+B of the second stage. Only
// filling and emptying the pipeline take longer.
func TestPipeDreamRoundRobin(t *testing.T) {
	for _, r := range []int{2, 3, 4} {
		placement := [][]int{nil, {r}}
		for w := range r {
			placement[0] = append(placement[0], w)
		}
		p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: placement, MicroBatches: 1, Repeat: 20 * r})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		c := Uniform(2, 1, 2, 0)
		c.Stages[0][0].ForwardS, c.Stages[0][0].BackwardS = float64(r), 2*float64(r)
		_, sum, err := Run(p, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ideal := 3 * 20 * float64(r)
		if fill := sum.EndS - ideal; fill < 0 || fill > 9*float64(r) {
			t.Errorf("%d replicas: %d minibatches take %v, %v over the bottleneck's own time", r, 20*r, sum.EndS, fill)
		}
	}
}

// TestModelParallel: without pipelining, a step of M micro-batches on N stages takes M N (F+B) and two transfers for
// each cut and micro-batch.
func TestModelParallel(t *testing.T) {
	for _, N := range []int{1, 2, 4} {
		for _, M := range []int{1, 3, 8} {
			_, sum, err := Run(program(t, "mp", N, M, 1), Uniform(N, 1, 2, 0.25), Options{})
			if err != nil {
				t.Fatal(err)
			}
			// The first stage does not wait between micro-batches: its next forward follows its backward.
			want := float64(M) * (float64(N)*3 + 2*float64(N-1)*0.25)
			if math.Abs(sum.StepS-want) > 1e-9 {
				t.Errorf("N=%d M=%d: %v, want %v", N, M, sum.StepS, want)
			}
		}
	}
}

// TestPairsOnBoards: on a board, a stage computes a pair of F and B at once, in P < F + B. Without a partner, F and B
// take their own time. With M micro-batches on N stages, FBP-AS computes M-1 pairs on the last stage. It also computes
// N forwards before them and N backwards after them: (M-1) P + N (F + B). If P is F + B, this is Table I's time.
func TestPairsOnBoards(t *testing.T) {
	for _, N := range []int{1, 2, 3, 4} {
		for _, M := range []int{2 * N, 4 * N, 32} {
			for _, P := range []float64{2, 2.5, 3} {
				c := streaming(N, 1, 2, 0)
				for s := range c.Stages {
					c.Stages[s][0].PairedS = P
				}
				_, sum, err := Run(program(t, "fbp-as", N, M, 1), c, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if want := float64(M-1)*P + float64(N)*3; math.Abs(sum.StepS-want) > 1e-9 {
					t.Errorf("N=%d M=%d P=%v: %v, want %v", N, M, P, sum.StepS, want)
				}
				if _, sum, err = Run(program(t, "1f1b-as", N, M, 1), c, Options{}); err != nil {
					t.Fatal(err)
				}
				if want := float64(M+N-1) * 3; math.Abs(sum.StepS-want) > 1e-9 {
					t.Errorf("1F1B-AS N=%d M=%d: %v, want %v: it pairs nothing", N, M, sum.StepS, want)
				}
			}
		}
	}
}
