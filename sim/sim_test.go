package sim

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

func straight(stages int) [][]int {
	on := make([][]int, stages)
	for i := range on {
		on[i] = []int{i}
	}
	return on
}

func program(t testing.TB, order string, S, M, repeat int) *schedule.Program {
	t.Helper()
	p, err := family.Generate(order, schedule.Settings{Placement: straight(S), MicroBatches: M, Repeat: repeat})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestKnownStepTimes checks the known times of a step of M micro-batches on S uniform stages. SR is the time of a
// transfer, and c = ceil((M-1)/S):
//
//	afab      (M+S-1)(F+B) + 2(S-1)SR               GPipe
//	1f1b      (M+S-1)(F+B) + (S+M-2-c)2SR           BaPipe Table II, SNO; any SR tried
//	so, pb    (M+S-1)(F+B) + (S-1)2SR               BaPipe Table II, SO; while 2 SR <= F+B
//
// pb is DAPPLE's P_B (§5.3), which holds one micro-batch less on every stage than SO.
func TestKnownStepTimes(t *testing.T) {
	for _, S := range []int{2, 3, 4, 8} {
		for _, M := range []int{S, 2 * S, 4 * S, 2*S + 1} {
			for _, B := range []float64{1, 2} {
				for _, SR := range []float64{0, 0.2, 0.5, 1} {
					c := math.Ceil(float64(M-1) / float64(S))
					ideal := float64(M+S-1) * (1 + B)
					want := map[string]float64{
						"afab": ideal + 2*float64(S-1)*SR,
						"1f1b": ideal + (float64(S+M-2)-c)*2*SR,
					}
					if 2*SR <= 1+B {
						want["so"] = ideal + float64(S-1)*2*SR
						want["pb"] = want["so"]
					}
					for order, step := range want {
						_, sum, err := Run(program(t, order, S, M, 1), Uniform(S, 1, B, SR), Options{})
						if err != nil {
							t.Fatal(err)
						}
						if math.Abs(sum.StepS-step) > 1e-9 {
							t.Errorf("%s S=%d M=%d B=%v SR=%v: step %v, want %v", order, S, M, B, SR, sum.StepS, step)
						}
						bubble := 1 - float64(M)*(1+B)/step
						if math.Abs(sum.Bubble-bubble) > 1e-9 {
							t.Errorf("%s S=%d M=%d B=%v SR=%v: bubble %v, want %v", order, S, M, B, SR, sum.Bubble, bubble)
						}
					}
				}
			}
		}
	}
}

func TestPeaksAreWhatCheckCounts(t *testing.T) {
	for _, order := range []string{"afab", "1f1b", "pb", "so"} {
		p := program(t, order, 4, 9, 3)
		rep, err := check.Check(p)
		if err != nil {
			t.Fatal(err)
		}
		_, sum, err := Run(p, Uniform(4, 1, 2, 0.3), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(rep.PeakActivations, sum.PeakActivations); d != "" {
			t.Errorf("%s: %s", order, d)
		}
		for w, bytes := range sum.PeakBytes { // each held micro-batch is one byte
			if bytes != int64(rep.PeakActivations[w]) {
				t.Errorf("%s: worker %d holds %d bytes, want %d", order, w, bytes, rep.PeakActivations[w])
			}
		}
	}
}

func TestTheSameBytesTwice(t *testing.T) {
	a, sa, _ := Run(program(t, "pb", 4, 8, 3), on(2, Uniform(4, 1, 1.7, 0.3)), Options{Record: true})
	b, sb, _ := Run(program(t, "pb", 4, 8, 3), on(2, Uniform(4, 1, 1.7, 0.3)), Options{Record: true})
	if d := cmp.Diff(a, b); d != "" || cmp.Diff(sa, sb) != "" {
		t.Error(d)
	}
}

// TestCoresAreShared: four workers on two cores take at least half of the total work, and no more than two of them
// compute at once.
func TestCoresAreShared(t *testing.T) {
	tl, sum, err := Run(program(t, "1f1b", 4, 8, 1), on(2, Uniform(4, 1, 2, 0)), Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if least := 4.0 * 8 * 3 / 2; sum.StepS < least {
		t.Errorf("step %v beats the cores' %v", sum.StepS, least)
	}
	for _, a := range tl.Events {
		if a.Lane != "compute" {
			continue
		}
		at := 0
		for _, b := range tl.Events {
			if b.Lane == "compute" && b.StartS <= a.StartS && a.StartS < b.EndS {
				at++
			}
		}
		if at > 2 {
			t.Fatalf("%d workers compute at %v", at, a.StartS)
		}
	}
}

// deadGate is a Machine that lets no worker start.
type deadGate struct{ *machine.Machine }

func (g deadGate) Poll(w int) machine.Need {
	n := g.Machine.Poll(w)
	n.Lack = machine.Core
	return n
}

func TestAGateThatReleasesNothing(t *testing.T) {
	p := program(t, "1f1b", 2, 4, 1)
	m, err := machine.New(p, machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = Run(p, Uniform(2, 1, 1, 0), Options{Gate: deadGate{m}})
	var stall *machine.StallError
	if !errors.As(err, &stall) || len(stall.Waits) != 2 {
		t.Fatalf("got %v, want a stall of both workers", err)
	}
}

func TestLinksQueue(t *testing.T) {
	// Here the forwards of the two stages take almost no time, so only the link sets the pace.
	c := Uniform(2, 0, 0, 0)
	c.Stages[0][0].ActivationBytes = 10
	c.Transfer = func(_, _ int, bytes int64) (float64, float64) { return 1, float64(bytes) }
	c.Stages[1][0].ForwardS = 1e-9
	_, sum, err := Run(program(t, "afab", 2, 5, 1), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Five messages of 10 s follow one another. After the last come 1 s of latency, and 1 s for its gradient.
	if want := 5*10.0 + 1 + 1; math.Abs(sum.EndS-want) > 1e-6 {
		t.Errorf("ends at %v, want %v", sum.EndS, want)
	}
}

func BenchmarkInstructions(b *testing.B) {
	for _, size := range []struct{ S, M int }{{8, 64}, {64, 512}, {1024, 4096}} {
		b.Run(fmt.Sprintf("S=%d,M=%d", size.S, size.M), func(b *testing.B) {
			p := program(b, "1f1b", size.S, size.M, 1)
			c := Uniform(size.S, 1, 2, 0.1)
			var n int64
			for b.Loop() {
				_, sum, err := Run(p, c, Options{})
				if err != nil {
					b.Fatal(err)
				}
				n += sum.Instructions
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "instructions/s")
		})
	}
}

// on returns the costs for workers that all share the given number of cores.
func on(cores int, c Costs) Costs {
	c.Cores = machine.Share(cores)
	return c
}
