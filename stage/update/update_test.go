package update_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/update"
)

func TestPlainStepsByWhatIsGathered(t *testing.T) {
	b := newBench(t, update.Plain, nil, 1)
	u := b.made[0]
	for step := range 3 {
		before := b.weights(0)
		b.forward(0, step)
		g := b.backward(0, step)
		b.check(u.Complete())
		b.check(u.Update(stepBy(0.25, 0.5, stage.Replace)))
		b.same(fmt.Sprintf("step %d", step), b.weights(0), stepped(before, g, 0.25, 0.5), near)
	}
	b.refused(u.Confirm(), "not one that can be taken back")
	_, err := u.Undo()
	b.refused(err, "not one that can be taken back")
	if apart, err := u.Apart(); apart != 0 || err != nil {
		t.Errorf("apart: %v, %v", apart, err)
	}
	before := b.weights(0)
	b.check(u.AverageStatistics(2)) // no statistics were summed, so nothing is divided
	b.same("statistics that nobody summed", b.weights(0), before, exact)
	_, err = u.Statistics()
	b.check(err)
	b.check(u.AverageStatistics(2))
	for name := range b.numbers(b.models[0].Statistics.Vectors()) {
		half := slices.Clone(before[name])
		for i := range half {
			half[i] /= 2
		}
		b.same("statistics", b.weights(0), numbers{name: half}, exact)
	}
	before = b.weights(0)
	b.check(u.AverageStatistics(2))
	b.same("statistics that were averaged", b.weights(0), before, exact)
}

// A minibatch's gradients update the weights during the next minibatch or right after it. The update may come before,
// between or after the next minibatch's micro-batches. Each micro-batch's gradients are computed with the weights of
// its forward.
func TestDeferredStepsByTheMinibatchBefore(t *testing.T) {
	b, apart := newBench(t, update.Deferred, nil, 1), newBench(t, update.Plain, nil, 1)
	u, s := b.made[0], b.models[0]
	_, err := u.Norms()
	b.refused(err, "no gradients of layers 0 to 4 are complete")
	b.refused(u.Update(stepBy(1, 1, stage.Replace)), "no gradients of layers 0 to 4 are complete")
	b.forward(0, 0)
	late := b.backward(0, 0)
	b.check(u.Complete())
	updated := func(at string, how stage.Renewal) {
		t.Helper()
		before := b.weights(0)
		b.check(u.Update(stepBy(0.25, 1, how)))
		b.same(at, b.weights(0), stepped(before, late, 0.25, 1), near)
	}
	for id := 1; id < 7; id++ {
		at, where, old := fmt.Sprintf("minibatch %d", id), id%3, s.Versions.Newest()
		next := apart.alone(b, 2*id)
		b.forward(0, 2*id)
		b.back(0, 2*id)
		squares, err := u.Norms()
		b.check(err)
		got, err := stage.Values(b.dev, squares)
		b.check(err)
		squares.Free()
		if total, want := stage.GlobalNorm(got), norm(late); math.Abs(total-want) > near {
			t.Errorf("%s: the norm is %v; that of the gradients before is %v", at, total, want)
		}
		if where == 0 {
			updated(at+", between its micro-batches", stage.Replace)
		}
		for name, g := range apart.alone(b, 2*id+1) {
			for i := range g {
				next[name][i] += g[i]
			}
		}
		b.forward(0, 2*id+1)
		if where == 1 {
			updated(at+", with a micro-batch under way", stage.Keep)
		}
		b.back(0, 2*id+1)
		if where == 1 {
			b.check(s.Drop(old))
		}
		b.check(u.Complete())
		if where == 2 {
			updated(at+", behind it", stage.Replace)
		}
		late = next
	}
}

// norm returns the root of the sum of all squares.
func norm(g numbers) float64 {
	total := 0.0
	for _, x := range g {
		for _, v := range x {
			total += v * v
		}
	}
	return math.Sqrt(total)
}

// Buffers become the mean over the replicas if no forward has come after the sum.
func TestDeferredStatistics(t *testing.T) {
	b := newBench(t, update.Deferred, nil, 1)
	u, s := b.made[0], b.models[0]
	b.forward(0, 0)
	early := b.numbers(s.Statistics.Vectors())
	_, err := u.Statistics()
	b.check(err)
	b.forward(0, 1)
	later := b.numbers(s.Statistics.Vectors())
	sums, err := u.Statistics()
	b.check(err)
	for name, x := range early {
		if slices.Equal(x, later[name]) {
			t.Fatalf("a forward does not change %s", name)
		}
	}
	if len(early) != 2 {
		t.Fatalf("%d buffers", len(early))
	}
	for _, v := range sums { // adds the statistics of another replica, which are twice as large
		b.check(engine.AddInto(b.dev, v.Tensor, v.Tensor, 2))
	}
	b.check(u.AverageStatistics(2))
	b.same("with a forward behind", b.numbers(s.Statistics.Vectors()), later, exact)
	b.check(u.AverageStatistics(2))
	for name, x := range later {
		for i := range x {
			x[i] *= 1.5
		}
		b.same("at the end", b.numbers(s.Statistics.Vectors()), numbers{name: x}, near)
	}
	b.backward(0, 0)
	b.backward(0, 1)
}

// A tentative update that is confirmed leaves the same weights, bit for bit, as a plain update that waited for the
// norm. So does one that is undone and repeated with another scale. Micro-batches after an undone update have no
// effect.
func TestTentative(t *testing.T) {
	tried, waited := newBench(t, update.Tentative, nil, 1), newBench(t, update.Plain, nil, 1)
	u := tried.made[0]
	tried.refused(u.Confirm(), "not one that can be taken back")
	for id := range 4 {
		for _, b := range []*bench{tried, waited} {
			b.forward(0, id)
			b.backward(0, id)
		}
		refuse, scale := id%2 == 1, 1.0
		if refuse {
			scale = 0.125
		}
		before := tried.weights(0)
		tried.check(u.Update(stepBy(0.25, 1, stage.Replace)))
		tried.refused(u.Update(stepBy(0.25, 1, stage.Replace)), "neither confirmed nor taken back")
		if slices.Equal(before["a.weight"], tried.weights(0)["a.weight"]) {
			t.Error("an update that is tried changes nothing")
		}
		if refuse {
			tried.forward(0, 10+id)
			tried.forward(0, 20+id)
			thrown, err := u.Undo()
			tried.check(err)
			if thrown != 2 || tried.models[0].Open() != 0 {
				t.Errorf("%d micro-batches thrown away, %d open; want 2 and none", thrown, tried.models[0].Open())
			}
			tried.same("undone", tried.weights(0), before, exact)
			tried.check(u.Update(stepBy(0.25, scale, stage.Replace)))
			tried.refused(u.Confirm(), "not one that can be taken back")
		} else {
			tried.check(u.Confirm())
		}
		waited.check(waited.made[0].Update(stepBy(0.25, scale, stage.Replace)))
		tried.same(fmt.Sprintf("update %d", id), tried.weights(0), waited.weights(0), exact)
		if n := tried.models[0].Versions.Held(); n != 1 {
			t.Errorf("%d versions are left", n)
		}
	}
	tried.forward(0, 9)
	tried.backward(0, 9)
	tried.check(u.Update(stepBy(0.25, 1, stage.Replace))) // this update stays open: Close must free what it keeps
}

// AvgPipe §3.2: every pipeline's update mixes its weights with the reference's in the ratio (1-alpha):alpha. It adds
// its optimizer's step after the mixing, or before it in the paper's printed order. The reference moves by the mean of
// the steps.
func TestElastic(t *testing.T) {
	for _, order := range []plan.AveragingOrder{plan.DiluteFirst, plan.UpdateFirst} {
		t.Run(string(order), func(t *testing.T) {
			const n, alpha, rate = 3, 0.3, 0.25
			b := newBench(t, update.Elastic, &plan.Elastic{Pipelines: n, Alpha: alpha, Order: order}, n+1)
			for id := range 3 {
				z := b.weights(n)
				moved := numbers{}
				for name, x := range z {
					moved[name] = slices.Clone(x)
				}
				statistics := b.numbers(b.models[n].Statistics.Vectors())
				for name := range statistics {
					moved[name] = make([]float64, len(moved[name]))
				}
				for p := range n {
					x := b.weights(p)
					b.forward(p, id)
					g := b.backward(p, id)
					want := numbers{}
					for name, by := range stepped(x, g, rate, 1) {
						if _, parameter := g[name]; !parameter {
							want[name] = by // the optimizer's step
							continue
						}
						want[name] = make([]float64, len(by))
						for i := range by {
							u := by[i] - x[name][i]
							if want[name][i] = (1-alpha)*x[name][i] + alpha*z[name][i] + u; order == plan.UpdateFirst {
								want[name][i] = (1-alpha)*(x[name][i]+u) + alpha*z[name][i]
							}
							moved[name][i] += u / n
						}
					}
					for name, seen := range b.numbers(b.models[p].Statistics.Vectors()) {
						for i := range seen {
							moved[name][i] += seen[i] / n
						}
					}
					b.check(b.made[p].Update(stepBy(rate, 1, stage.Replace)))
					b.same(fmt.Sprintf("iteration %d, pipeline %d", id, p), b.weights(p), want, near)
				}
				b.refused(b.made[1].Update(stepBy(rate, 1, stage.Replace)),
					"the reference of stage 4 has not yet taken the step that pipeline 1 left before")
				b.check(b.made[n].Update(stepBy(rate, 1, stage.Replace)))
				b.same(fmt.Sprintf("iteration %d, reference", id), b.weights(n), moved, near)
			}
			b.refused(b.made[n].Update(stepBy(rate, 1, stage.Replace)),
				"pipeline 0 has left no step in the queue of the reference of stage 4")
			b.apart(n)
		})
	}
}

// apart checks the reported distance between the reference and the average of n pipelines.
func (b *bench) apart(n int) {
	b.Helper()
	var difference, scale float64
	for _, p := range b.models[n].Params.Learned {
		z := b.weights(n)[p.Name]
		for i := range z {
			mean := 0.0
			for k := range n {
				mean += b.weights(k)[p.Name][i] / float64(n)
			}
			difference, scale = max(difference, math.Abs(mean-z[i])), max(scale, math.Abs(z[i]))
		}
	}
	got, err := b.made[n].Apart()
	if b.check(err); math.Abs(got-difference/scale) > near {
		b.Errorf("apart %v; want %v", got, difference/scale)
	}
}

// A single pipeline is trained plainly, without a reference.
func TestOnePipelineIsPlain(t *testing.T) {
	b := newBench(t, update.Elastic, plan.NewElastic(1), 1)
	before := b.weights(0)
	b.forward(0, 0)
	g := b.backward(0, 0)
	b.check(b.made[0].Update(stepBy(0.25, 1, stage.Replace)))
	b.same("one pipeline", b.weights(0), stepped(before, g, 0.25, 1), near)
}

func TestWhatIsNoUpdaterIsRefused(t *testing.T) {
	b := newBench(t, update.Plain, nil, 1)
	for _, c := range []struct {
		name   string
		with   *plan.Elastic
		models int
		want   string
	}{
		{"lazy", nil, 1, "there are deferred, elastic, plain, tentative"},
		{update.Plain, nil, 2, "2 models of stage 4"},
		{update.Tentative, nil, 0, "0 models of stage 4"},
		{update.Elastic, nil, 1, "has no settings"},
		{update.Elastic, plan.NewElastic(3), 3, "elastic averaging of 3 pipelines has 4"},
	} {
		_, err := update.New(c.name, update.Config{Averaging: c.with, Stage: 4}, slices.Repeat(b.models, c.models))
		b.refused(err, c.want)
	}
}
