package avgpipe

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// dearer returns overheads() as another machine would profile it. The first four layers take 1.5 times as long forward
// and twice as long backward. The other layers take 0.7 times as long. Plain updates take five times as long. With
// micro-batches of 16 samples, forwards and backwards take a quarter more time.
func dearer() *profile.Profile {
	p := overheads()
	for l := range p.Layers {
		forward, backward := 1.5, 2.
		if l > 3 {
			forward, backward = 0.7, 0.7
		}
		layer := &p.Layers[l]
		layer.UpdateS, layer.PulledUpdateS, layer.ReferenceUpdateS = 0.05, 0.08, 0.03
		for i := range layer.Costs {
			c := &layer.Costs[i]
			c.ForwardS *= forward
			c.BackwardS *= backward
			if c.MicroBatch == 16 {
				c.ForwardS, c.BackwardS = 1.25*c.ForwardS, 1.25*c.BackwardS
			}
		}
	}
	return p
}

// crowded returns dearer() as measured next to another pipeline, whose parameters evict those of small micro-batches
// from the cache. With one sample, forwards take 1.4 and backwards 1.6 times as long. With two samples, the increase is
// half as large. With four samples, there is none.
func crowded() *profile.Profile {
	p := dearer()
	for l := range p.Layers {
		for i := range p.Layers[l].Costs {
			switch c := &p.Layers[l].Costs[i]; c.MicroBatch {
			case 1:
				c.ForwardS, c.BackwardS = 1.4*c.ForwardS, 1.6*c.BackwardS
			case 2:
				c.ForwardS, c.BackwardS = 1.2*c.ForwardS, 1.3*c.BackwardS
			}
		}
	}
	return p
}

// TestAnchoredProfileIsPutRight: four measured settings correct a profile that is wrong by stage, by kind of work, and
// by how many pipelines compute at once. Factors for micro-batches of 8 samples are interpolated.
func TestAnchoredProfileIsPutRight(t *testing.T) {
	w := workload()
	for l := range w.Profile.Layers {
		w.Profile.Layers[l].PulledUpdateS, w.Profile.Layers[l].ReferenceUpdateS = 0.02, 0.005
	}
	truth := workload()
	truth.Profile, truth.Beside = dearer(), crowded()
	r := request(w, 3)
	machine, ran := truth.Simulated(), map[Degrees]int{}
	r.Machine = func(ctx context.Context, p *Pipelined, iterations int, record bool) (*Trial, error) {
		ran[p.At]++
		return machine(ctx, p, iterations, record)
	}
	r.Anchored, r.Settings = true, MostSettings
	out, err := Tune(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out.Choices { // each is tried once, may be profiled, and is then tried in rounds with all choices
		if n := ran[c.At]; n < 1+rounds || n > 2+rounds {
			t.Errorf("%s, of %s, ran %d times", c.At, c.Method, n)
		}
	}
	if want := []Degrees{{1, 2}, {16, 1}, {16, 2}, {4, 1}}; !slices.Equal(out.Anchors, want) {
		t.Fatalf("anchors %v; want %v", out.Anchors, want)
	}
	if out.Profiled.At != (Degrees{16, 1}) {
		t.Errorf("the equations were asked from %s; want the most micro-batches", out.Profiled.At)
	}
	for l, layer := range out.Calibrated.Profile.Layers {
		want := truth.Profile.Layers[l]
		if !near(layer.UpdateS, want.UpdateS) || !near(layer.PulledUpdateS, want.PulledUpdateS) ||
			!near(layer.ReferenceUpdateS, want.ReferenceUpdateS) {
			t.Errorf("layer %d updates in %v, %v and %v s; want %v, %v, %v", l, layer.UpdateS, layer.PulledUpdateS,
				layer.ReferenceUpdateS, want.UpdateS, want.PulledUpdateS, want.ReferenceUpdateS)
		}
		for i, c := range layer.Costs {
			if b := c.MicroBatch; b == 8 { // by logarithm, 8 is half way from 4 to 16; 16 samples take a quarter more
				if want := want.Costs[i].ForwardS * 1.125; !near(c.ForwardS, want) {
					t.Errorf("layer %d at %d samples: %v s; want %v", l, b, c.ForwardS, want)
				}
			} else if !near(c.ForwardS, want.Costs[i].ForwardS) || !near(c.BackwardS, want.Costs[i].BackwardS) {
				t.Errorf("layer %d at %d samples: %v and %v s; want %v and %v", l, b, c.ForwardS, c.BackwardS,
					want.Costs[i].ForwardS, want.Costs[i].BackwardS)
			}
		}
	}
	for l, layer := range out.Calibrated.Beside.Layers {
		for i, c := range layer.Costs {
			want, b := truth.Beside.Layers[l].Costs[i], c.MicroBatch
			if b != 8 && (!near(c.ForwardS, want.ForwardS) || !near(c.BackwardS, want.BackwardS)) {
				t.Errorf("layer %d at %d samples beside another pipeline: %v and %v s; want %v and %v", l, b, c.ForwardS,
					c.BackwardS, want.ForwardS, want.BackwardS)
			}
		}
	}
	for _, e := range out.Errors {
		if e.Method == BySimulator && e.MeanStep > 0.03 /* 12 % where factors are interpolated */ {
			t.Errorf("off what was measured: %+v", e)
		}
	}
	// M = 1 and M = 2 have equal predictions, because the factors for 8 samples are interpolated. The setting that
	// loses less time in a bad moment of the machine is chosen.
	if c := out.Choices[0]; c.Tried != 4 || c.At != (Degrees{1, 2}) ||
		c.Measured.StepS > out.Choices[3].Measured.StepS*1.125 {
		t.Errorf("chose %s of %v s after %d settings; traversal %v s", c.At, c.Measured.StepS, c.Tried,
			out.Choices[3].Measured.StepS)
	}
}

// TestOneSettingIsProfiled: unless more are requested, one setting is profiled, with the paper's twenty batches
// (section 5.2.1). This setting has the second largest number of micro-batches. Its factors correct the stages at every
// size.
func TestOneSettingIsProfiled(t *testing.T) {
	for settings, want := range map[int][]Degrees{0: {{8, 1}}, 1: {{8, 1}}, 2: {{1, 2}, {4, 1}},
		3: {{1, 2}, {16, 1}, {4, 1}}} {
		w, truth := workload(), workload()
		truth.Profile = dearer()
		r := request(w, 3)
		machine, batches := truth.Simulated(), map[Degrees]int{}
		r.Machine = func(ctx context.Context, p *Pipelined, iterations int, record bool) (*Trial, error) {
			batches[p.At] += iterations * p.At.Pipelines
			return machine(ctx, p, iterations, record)
		}
		r.Anchored, r.Settings, r.Rivals = true, settings, false
		out, err := Tune(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out.Anchors, want) {
			t.Errorf("of %d settings: anchors %v; want %v", settings, out.Anchors, want)
		}
		if settings > 1 {
			continue
		}
		if len(batches) != 1 || batches[want[0]] != 20 {
			t.Errorf("batches %v; want 20 of %v", batches, want[0])
		}
		for l, layer := range out.Calibrated.Profile.Layers {
			for i, c := range layer.Costs {
				of := truth.Profile.Layers[l].Costs[i]
				f, b := of.ForwardS, of.BackwardS
				if c.MicroBatch == 16 { // only a profiled setting with 16 samples would show that these take a quarter more
					f, b = f/1.25, b/1.25
				}
				if !near(c.ForwardS, f) || !near(c.BackwardS, b) {
					t.Errorf("layer %d at %d samples: %v and %v s; want %v and %v", l, c.MicroBatch, c.ForwardS, c.BackwardS, f, b)
				}
			}
		}
	}
}

// TestAnchorsKeepToTheLimit: if two pipelines of the largest micro-batches exceed the limit, a setting with one
// pipeline replaces them.
func TestAnchorsKeepToTheLimit(t *testing.T) {
	w := workload()
	one, err := w.simulate(Degrees{1, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.LimitBytes = one.Peak()
	r := request(w, 2)
	r.Anchored, r.Settings, r.Rivals = true, MostSettings, false
	out, err := Tune(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Degrees{{1, 1}, {16, 1}, {4, 1}}; !slices.Equal(out.Anchors, want) {
		t.Errorf("anchors %v; want %v", out.Anchors, want)
	}
}

// TestExtrapolated: a line through the costs of two sizes gives the costs of other sizes. For bytes the line is exact.
// More samples never take less time.
func TestExtrapolated(t *testing.T) {
	p := plantest.Chain(1, 2, 4)
	costs := p.Layers[0].Costs
	costs[0].ForwardS, costs[1].ForwardS = 0.5, 0.75
	costs[0].BackwardS, costs[1].BackwardS = 2, 1
	costs[0].SavedBytes, costs[1].SavedBytes = 1000, 1800
	costs[0].BackwardInputS, costs[1].BackwardInputS = new(0.25), new(0.5)
	costs[1].AgainS = new(3.) // known for one size only, so not extrapolated
	out := Extrapolated(p, []int{2, 4, 8, 16})
	if got := out.Sizes("cpu"); !slices.Equal(got, []int{2, 4, 8, 16}) {
		t.Fatalf("sizes %v", got)
	}
	c := out.Layers[0].Costs[3]
	if c.ForwardS != 2.25 || c.BackwardS != 1 || c.SavedBytes != 6600 || *c.BackwardInputS != 2 || c.AgainS != nil {
		t.Errorf("at 16 samples: %+v", c)
	}
	if len(p.Layers[0].Costs) != 2 {
		t.Error("the profile itself has changed")
	}
	one := Extrapolated(plantest.Chain(1, 4), []int{8})
	if a, b := one.Layers[0].Costs[0], one.Layers[0].Costs[1]; math.Abs(b.ForwardS-2*a.ForwardS) > 1e-12 ||
		b.OutputBytes != 2*a.OutputBytes {
		t.Errorf("of one size: %+v, then %+v", a, b)
	}
}

// TestTraversalInRounds: if a grid is traversed in several rounds, settings are measured by medians, and the scatter of
// trials is reported. If every third trial takes twice as long, trials differ from their medians by a third on average,
// and the medians are exact.
func TestTraversalInRounds(t *testing.T) {
	w := workload()
	machine, trials := w.Simulated(), 0
	r := request(w, 2)
	r.Rounds = 3
	r.Machine = func(ctx context.Context, p *Pipelined, iterations int, record bool) (*Trial, error) {
		trial, err := machine(ctx, p, iterations, record)
		if !record && err == nil {
			if trials++; trials%3 == 0 {
				trial.StepS *= 2
			}
		}
		return trial, err
	}
	out, err := Tune(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if trials != 3*len(out.Grid) || len(out.Grid)%3 == 0 {
		t.Fatalf("%d trials of %d settings; want 3 of each, the slow ones of another setting each round", trials,
			len(out.Grid))
	}
	for _, e := range out.Errors {
		switch e.Method {
		case BySimulator:
			if e.MeanStep > 0.05 {
				t.Errorf("medians of trials are off what is simulated: %+v", e)
			}
		case ByTrial:
			if math.Abs(e.MeanStep-1./3) > 0.01 || e.WorstStep != 1 || e.Settings != len(out.Grid) {
				t.Errorf("trials are off their medians by %+v; want a third in the mean and 1 at most", e)
			}
		}
	}
	if last := out.Errors[len(out.Errors)-1].Method; last != ByTrial {
		t.Errorf("the last error is %s's", last)
	}
	r.Rounds = -1
	if _, err := Tune(t.Context(), r); err == nil {
		t.Error("-1 rounds are not refused")
	}
}
