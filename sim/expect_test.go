package sim

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// TestWorkersFallBehindInTurn checks by hand two stages of 1F1B with F = 1, B = 2 and four micro-batches. In turn, one
// worker is a tenth slower and the other a tenth faster. For a micro-batch, the slow worker takes 1.1 + 2.2 = 3.3, and
// the fast worker 0.9 + 1.8 = 2.7. If the second worker is slow, it never idles from its first forward to its last
// backward. The step takes 0.9 + 4 x 3.3 + 1.8 = 15.9. If the first worker is slow, it computes for 4 x 3.3 = 13.2. It
// idles for 2.7 - 1.1 = 1.6 until its first gradient arrives, and for 2.7 - 2.2 = 0.5 before its last backward. The
// step takes 15.3. The expected step is the mean of both steps.
func TestWorkersFallBehindInTurn(t *testing.T) {
	p := loweredOf(t, "1f1b", schedule.Settings{Placement: straight(2), MicroBatches: 4, Repeat: 1})
	costs := Uniform(2, 1, 2, 0)
	costs.Noise.PaceSpread = 0.1
	sum, err := Expect(p, costs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	exactly(t, sum.StepS, (15.9+15.3)/2, "step")
	exactly(t, sum.EndS, sum.StepS, "end of the only step")
	exactly(t, sum.Bubble, 1-12/15.6, "bubble")
	exactly(t, sum.BusyS[0], 12, "computing")

	costs.Cores = machine.Share(1)
	shared, err := Expect(p, costs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	exactly(t, shared.StepS, 24, "taking turns")
	costs.Noise.PaceSpread = -0.1
	if _, err := Expect(p, costs, Options{}); err == nil {
		t.Error("a spread below 0 was taken")
	}
}

// TestPacesNeverShortenAStep: a step is a convex function of the computing times, so workers at different paces are
// never faster than workers at one pace.
func TestPacesNeverShortenAStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := randomCase(t)
		costs := randomCosts(t, p)
		costs.Links, costs.Cores = nil, nil
		costs.Transfer = func(int, int, int64) (float64, float64) { return 0.1, 0 }
		_, usual, err := Run(p, costs, Options{Vary: costs.Noise.Vary()})
		if err != nil {
			t.Fatal(err)
		}
		costs.Noise.PaceSpread = rapid.Float64Range(0, 0.5).Draw(t, "spread")
		sum, err := Expect(p, costs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if sum.EndS < usual.EndS*(1-1e-9) {
			t.Fatalf("%s ends at %v, at one pace at %v", p.Name, sum.EndS, usual.EndS)
		}
	})
}

func TestPlaysCountsWhatExpectPlays(t *testing.T) {
	spread := Costs{Noise: Noise{PaceSpread: 0.1}}
	turns := Costs{Noise: Noise{PaceSpread: 0.1}, Cores: machine.Share(2)}
	apart := Costs{Noise: Noise{PaceSpread: 0.1}, Cores: machine.Pools{{Cores: 2, Workers: []int{0, 1, 2}}}}
	for _, c := range []struct {
		costs   Costs
		workers int
		want    int
	}{
		{Costs{}, 4, 1}, {spread, 1, 1}, {spread, 2, 3}, {turns, 2, 3}, {turns, 4, 1}, {apart, 4, 1},
		{spread, mostPaced + 1, 1},
	} {
		if got := c.costs.Plays(c.workers); got != c.want {
			t.Errorf("%d workers on cores %v: %d plays, want %d", c.workers, c.costs.Cores, got, c.want)
		}
	}
}
