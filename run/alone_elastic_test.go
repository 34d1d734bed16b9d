package run

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// averaging is AvgPipe's elastic averaging (PPoPP 2023, §3.2). Each pipeline has its own weights, which are pulled
// towards a reference. The reference moves by the mean of the pipelines' steps.
type averaging struct {
	*alone
	x        []values   // by pipeline
	memories []memories // by pipeline
	z        values
	batches  int
}

func newAveraging(c chain, of Config) *averaging {
	p := *of.Plan
	p.Weights, p.Stages = string(schedule.Sync), []plan.Stage{{LastLayer: len(of.Model.Layers) - 1, Devices: []int{0}}}
	of.Plan = &p
	a := &averaging{alone: newAlone(c, of)}
	a.z = a.versions[0][0]
	return a
}

// train makes this many iterations with the settings e. If e changes the number of pipelines, all pipelines begin at
// the reference, with the mean of the optimizer states that the pipelines had before.
func (a *averaging) train(iterations int, e plan.Elastic) error {
	n := e.Pipelines
	if n != len(a.x) {
		mean := memories{values{}, values{}}
		for _, m := range a.memories {
			m.a.addTo(mean.a)
			m.b.addTo(mean.b)
		}
		for _, sum := range []values{mean.a, mean.b} {
			if len(a.x) > 0 {
				sum.scale(1 / float64(len(a.x)))
			}
		}
		a.x, a.memories = nil, nil
		for range n {
			a.x, a.memories = append(a.x, a.z.clone()), append(a.memories, memories{mean.a.clone(), mean.b.clone()})
		}
	}
	for range iterations {
		moved := values{}
		for p := range n {
			u, err := a.own(p)
			if err != nil {
				return err
			}
			u.addTo(moved)
			x := values{}
			for name := range u {
				before, z := a.x[p][name], a.z[name]
				next := make([]float64, len(z))
				for k, step := range u[name] {
					next[k] = (1-e.Alpha)*before[k] + e.Alpha*z[k] + step
					if e.Order == plan.UpdateFirst {
						next[k] = (1-e.Alpha)*(before[k]+step) + e.Alpha*z[k]
					}
				}
				x[name] = next
			}
			a.x[p] = x
		}
		moved.scale(1 / float64(n))
		a.z = a.z.clone()
		moved.addTo(a.z)
		a.done++
	}
	return nil
}

// own returns by how much an optimizer step for the next batch changes pipeline p's weights.
func (a *averaging) own(p int) (values, error) {
	w, sums := []values{a.x[p]}, []values{{}}
	if err := a.gradients(a.batches, w, w, sums); err != nil {
		return nil, err
	}
	a.batches++
	if norm := sums[0].norm(); a.clip > 0 && norm > a.clip {
		sums[0].scale(a.clip / norm)
	}
	count := func(string) float64 { return float64(a.done + 1) }
	u := a.memories[p].step(a.optimizer, w[0], sums[0], count, rateAt(a.rate, a.done))
	minus := w[0].clone()
	minus.scale(-1)
	minus.addTo(u)
	return u, nil
}

// running returns the running statistics of the reference's norms: the mean over the pipelines.
func (a *averaging) running(pipelines int) values {
	out := values{}
	for _, l := range a.links {
		if !l.norm {
			continue
		}
		mean, variance := make([]float64, l.in), make([]float64, l.in)
		for p := range pipelines {
			for c := range l.in {
				m, v := 0.0, 1.0
				for at, k := range a.statistics[l.name] {
					if at/a.micros%pipelines == p {
						m, v = 0.9*m+0.1*k.means[0][c], 0.9*v+0.1*k.variances[0][c]
					}
				}
				mean[c], variance[c] = mean[c]+m/float64(pipelines), variance[c]+v/float64(pipelines)
			}
		}
		out[l.name+".mean"], out[l.name+".variance"] = mean, variance
	}
	return out
}

// Elastic averaging moves the weights of pipelines and reference as its equations say. This holds whether pipelines
// dilute first or update first, with every optimizer, and after a change of the number of pipelines.
func TestElasticAveragingMovesAsItsEquationsSay(t *testing.T) {
	for _, x := range pairings(t) {
		m := x.chain.model(t)
		for pipelines := 2; pipelines <= 3; pipelines++ {
			for i, optimizer := range optimizers {
				config := func(steps, pipelines int) Config {
					c := basic(t, x.engine, m, planOf(m, evenCuts(len(m.Layers), 1+i%3), 6, 2, "elastic"), 3, steps)
					c.Train.Optimizer, c.Train.Rate, c.Train.Clip = optimizer, rates[i%len(rates)], []float64{0, 0.4}[i%2]
					c.Plan.Weights = string(schedule.Elastic)
					c.Plan.Elastic = &plan.Elastic{
						Pipelines: pipelines,
						Alpha:     0.3,
						Order:     []plan.AveragingOrder{plan.DiluteFirst, plan.UpdateFirst}[i%2],
					}
					return c
				}
				first := config(6, pipelines)
				if i%2 == pipelines%2 {
					first.Checkpoint.Dir = t.TempDir()
				}
				twin := newAveraging(x.chain, first)
				if err := twin.train(6, *first.Plan.Elastic); err != nil {
					t.Fatal(err)
				}
				got := train(t, first)
				if err := twin.z.nearTo(got.Weights, x.limit); err != nil {
					t.Errorf("%s, %d pipelines, %+v: %v", x.engine.Name(), pipelines, optimizer, err)
				}
				if err := twin.running(pipelines).nearTo(got.Weights, x.limit); err != nil {
					t.Errorf("%s, %d pipelines, %+v: %v", x.engine.Name(), pipelines, optimizer, err)
				}
				if i%2 != pipelines%2 {
					continue
				}
				again := config(10, 5-pipelines)
				again.Resume.At, again.Resume.Averaged = first.Checkpoint.Dir, true
				if err := twin.train(4, *again.Plan.Elastic); err != nil {
					t.Fatal(err)
				}
				if err := twin.z.nearTo(train(t, again).Weights, x.limit); err != nil {
					t.Errorf("%s, %d pipelines behind %d, %+v: %v", x.engine.Name(), 5-pipelines, pipelines, optimizer, err)
				}
			}
		}
	}
}
