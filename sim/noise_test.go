package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/schedule"
	"pgregory.net/rapid"
)

// TestRunReadsNoNoise: without Options.Vary, the Timeline and the Summary equal those of costs without noise.
func TestRunReadsNoNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := randomCase(t)
		c.Noise = Noise{}
		plain, plainSum, err := Run(p, c, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		c.Noise = Noise{DispatchS: 1, PaceSpread: 0.5}
		for range p.Stages {
			c.Noise.Spread = append(c.Noise.Spread, []float64{0.2})
		}
		noisy, sum, err := Run(p, c, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(plain, noisy) + cmp.Diff(plainSum, sum); d != "" {
			t.Fatal(d)
		}
	})
}

// TestVaryByHand checks Vary for computations of 2 s. The dispatch time is added after the pace and the spread.
// Micro-batches 2k and 2k+1 draw two factors whose product is 1.
func TestVaryByHand(t *testing.T) {
	first := schedule.Instruction{Kind: schedule.F, Stage: 1, Replica: 2, Micro: 6}
	second := first
	second.Micro = 7
	if (&Noise{PaceSpread: 0.5, Spread: [][]float64{{0}}}).Vary() != nil {
		t.Error("at one pace, with neither dispatch nor spread, something varies")
	}
	n := Noise{DispatchS: 0.25, PaceSpread: 0.5}
	exactly(t, n.Vary()(0, first, 2), 2.25, "dispatch alone")
	exactly(t, n.varyBehind(1, 3)(1, first, 2), 3.25, "half behind")
	exactly(t, n.varyBehind(1, 3)(0, first, 2), 1.75, "a quarter ahead, as is the third")
	n.PaceSpread = 5
	exactly(t, n.varyBehind(1, 3)(0, first, 2), 0.25, "as far ahead as can be")
	exactly(t, n.varyBehind(1, 3)(1, first, 2), 6.25, "behind by what two others can be ahead")
	n.Spread = [][]float64{{0}, {0, 0.2}}
	exactly(t, n.SpreadOf(1, 2), 0.2, "the last replica given stands for those after it")
	exactly(t, n.SpreadOf(2, 0), 0, "a stage not given")
	a, b := n.Vary()(0, first, 2)-0.25, n.Vary()(0, second, 2)-0.25
	if a == 2 || math.Abs(a*b-4) > 1e-12 {
		t.Errorf("two neighbouring micro-batches take %v and %v besides dispatch; want a product of 4, not 2 each", a, b)
	}
}

func TestNoiseThatNoClockCanTake(t *testing.T) {
	p := program(t, "1f1b", 2, 2, 1)
	for want, n := range map[string]Noise{
		"dispatch is -1":                        {DispatchS: -1},
		"the slowest worker behind the mean is": {PaceSpread: math.NaN()},
		"stage 1, replica 0: spread is +Inf":    {Spread: [][]float64{{0}, {math.Inf(1)}}},
	} {
		c := Uniform(2, 1, 2, 0)
		c.Noise = n
		if _, err := Expect(p, c, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, value := range []float64{-1, math.NaN(), math.Inf(1)} {
		for _, o := range []Options{{}, {Ahead: 1}} { // with and without a device that runs behind its host
			o.Vary = func(w int, _ schedule.Instruction, takesS float64) float64 {
				if w == 1 {
					return value
				}
				return takesS
			}
			_, _, err := Run(p, Uniform(2, 1, 2, 0), o)
			if err == nil || !strings.Contains(err.Error(), "1F0 on worker 1 costs 1 s and is varied to") {
				t.Errorf("varied to %v: %v", value, err)
			}
			if _, err := Expect(p, Uniform(2, 1, 2, 0), o); err == nil || !strings.Contains(err.Error(), "a Vary of its own") {
				t.Errorf("Expect with a Vary: %v", err)
			}
		}
	}
}
