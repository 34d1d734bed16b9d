package run

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/schedule"
)

// alone trains a chain cut into stages, minibatch by minibatch, with the versions of the weights that the
// policy's paper gives each stage.
type alone struct {
	chain
	first      []int // layer of each stage
	replicas   []int // of each stage
	again      []bool
	policy     schedule.Policy
	split      bool
	micros     int // of a minibatch
	rows       int // of a micro-batch
	clip       float64
	rate       optim.Rate
	optimizer  optim.Settings
	data       data.Split
	versions   [][]values // by stage
	memories   []memories // by stage
	sums       []values   // by stage: gradients of the minibatches of the group so far
	norms      []float64
	statistics statistics
}

// newAlone is the twin of a run of a chain.
func newAlone(c chain, of Config) *alone {
	p := of.Plan
	a := &alone{
		chain: c, policy: schedule.Policy(p.Weights), split: p.Replication == string(schedule.Split), micros: p.MicroBatches, rows: p.MicroBatch,
		clip: of.Clip, rate: of.Rate, optimizer: of.Optimizer, data: of.Data.Train,
		memories: make([]memories, len(p.Stages)), sums: make([]values, len(p.Stages)), statistics: statistics{},
	}
	all := c.initial(of.Model, of.Seed, of.Engine.Float())
	for i, s := range p.Stages {
		a.first, a.replicas = append(a.first, s.FirstLayer), append(a.replicas, len(s.Devices))
		a.again = append(a.again, s.Recompute != plan.KeepAll)
		held := values{}
		for l := s.FirstLayer; l <= s.LastLayer && l < len(c.links); l++ {
			for _, name := range c.links[l].params() {
				held[name] = all[name]
			}
		}
		a.versions = append(a.versions, []values{held.clone()})
		a.sums[i] = values{}
	}
	return a
}

// of is the layers of a stage. A stage of what the chain does not know, the loss alone, has none.
func (a *alone) of(stage int) []link {
	end := len(a.links)
	if stage+1 < len(a.first) {
		end = min(end, a.first[stage+1])
	}
	return a.links[min(a.first[stage], end):end]
}

// group is the minibatches that one update of a stage averages: as many as it has replicas where these take
// minibatches in turn (PipeDream §3.2), 1 where a minibatch of several micro-batches is aggregated or a step ends in a flush.
func (a *alone) group(stage int) int {
	if a.policy == schedule.Sync || a.policy == "" || a.split || a.micros > 1 {
		return 1
	}
	return a.replicas[stage]
}

// depth is how many minibatches a replica of a stage runs forward before its first backward: the workers from
// its stage on over the replicas, rounded up; on the input stage that is NOAM (PipeDream §3.2).
func (a *alone) depth(stage int) int {
	workers := 0
	for _, r := range a.replicas[stage:] {
		workers += r
	}
	return (workers + a.replicas[stage] - 1) / a.replicas[stage]
}

// reads is the versions of a stage's weights that the forward and the backward of a minibatch go through. Replicas
// alternate between one backward, its update, and one forward, so the q-th minibatch of a replica
// begins behind q - depth + 1 updates and goes back behind q.
func (a *alone) reads(stage, t int) (forward, backward int) {
	begun := func(i int) int { return max(0, t/a.group(i)-a.depth(i)+1) }
	switch a.policy {
	case schedule.Latest: // what is there
		return begun(stage), t / a.group(stage)
	case schedule.Stash: // §3.3, weight stashing: what the forward used
		return begun(stage), begun(stage)
	case schedule.Vertical: // §3.3, vertical sync: the minibatches that the input stage's weights had seen
		seen := begun(0) * a.group(0)
		return seen / a.group(stage), seen / a.group(stage)
	case schedule.DoubleBuffered: // w(t+1) = w(t) - lr grad f(w(t-1))
		return max(0, t/a.group(stage)-1), max(0, t/a.group(stage)-1)
	}
	return t, t
}

// parts is the rows of a micro-batch that a stage normalises together.
func (a *alone) parts(stage, rows int) []part2 {
	n := a.replicas[stage]
	if !a.split {
		n = 1
	}
	var out []part2
	for k := range n {
		out = append(out, part2{k * rows / n, (k + 1) * rows / n})
	}
	return out
}

// gradients adds those of the mean loss of a batch to sums, by stage.
func (a *alone) gradients(batch int, forward, backward, sums []values) error {
	x, target, err := a.batch(a.data, batch, a.micros*a.rows)
	if err != nil {
		return err
	}
	for m := range a.micros {
		from, to := m*a.rows, (m+1)*a.rows
		inputs := make([][][]float64, len(a.first))
		all := make([][]*kept, len(a.first))
		at := x[from:to]
		for i := range a.first {
			inputs[i] = at
			if all[i] = a.through(i, forward[i], at); len(all[i]) > 0 {
				at = all[i][len(all[i])-1].y
			}
			a.statistics.note(a.of(i), all[i])
		}
		g := crossEntropyBack(at, target[from:to])
		for _, row := range g {
			for c := range row {
				row[c] /= float64(a.micros * a.rows)
			}
		}
		for i := len(a.first) - 1; i >= 0; i-- {
			if a.again[i] {
				all[i] = a.through(i, backward[i], inputs[i])
			}
			links := a.of(i)
			for l := len(links) - 1; l >= 0; l-- {
				var own values
				g, own = links[l].backward(backward[i], all[i][l], g)
				own.addTo(sums[i])
			}
		}
	}
	return nil
}

func (a *alone) through(stage int, w values, x [][]float64) []*kept {
	var all []*kept
	for _, l := range a.of(stage) {
		k := l.forward(w, x, a.parts(stage, len(x)))
		all, x = append(all, k), k.y
	}
	return all
}

// train does so many steps.
func (a *alone) train(steps int) error {
	for t := range steps {
		forward, backward := make([]values, len(a.first)), make([]values, len(a.first))
		for i := range a.first {
			f, b := a.reads(i, t)
			forward[i], backward[i] = a.versions[i][f], a.versions[i][b]
		}
		if err := a.gradients(t, forward, backward, a.sums); err != nil {
			return err
		}
		a.update(t, t == steps-1)
	}
	return nil
}

// update steps the stages whose group of minibatches ends with t, by the mean over the group.
func (a *alone) update(t int, last bool) {
	means, square := map[int]values{}, 0.0
	for i := range a.first {
		g := a.group(i)
		if (t+1)%g != 0 && !last {
			continue
		}
		a.sums[i].scale(1 / float64(t%g+1))
		means[i], a.sums[i] = a.sums[i], values{}
	}
	total := values{}
	for _, mean := range means {
		mean.addTo(total)
	}
	for _, x := range total {
		for _, v := range x {
			square += v * v
		}
	}
	by := 1.0
	if norm := math.Sqrt(square); a.clip > 0 { // Pascanu et al., ICML 2013, Algorithm 1
		a.norms = append(a.norms, norm)
		by = math.Min(1, a.clip/norm)
	}
	for i, mean := range means {
		for name := range mean {
			mean[name] = append([]float64(nil), total[name]...) // of all stages, where several use it
		}
		mean.scale(by)
		count := len(a.versions[i])
		now := a.versions[i][count-1]
		for name, x := range now {
			if mean[name] == nil {
				mean[name] = make([]float64, len(x))
			}
		}
		a.versions[i] = append(a.versions[i], a.memories[i].step(a.optimizer, now, mean, count, rateAt(a.rate, t)))
	}
}

// weights is the newest of all stages.
func (a *alone) weights() values {
	out := values{}
	for _, v := range a.versions {
		for name, x := range v[len(v)-1] {
			out[name] = x
		}
	}
	return out
}

// statistics is the means and variances that norms have seen, in the order of their forwards: by layer, micro-batch and part.
type statistics map[string][]*kept

func (s statistics) note(links []link, all []*kept) {
	for i, l := range links {
		if l.norm {
			s[l.name] = append(s[l.name], all[i])
		}
	}
}

// on puts the stages of a plan on so many workers each.
func on(p *plan.Plan, replicas ...int) {
	next := 0
	for i, r := range replicas {
		p.Stages[i].Devices = nil
		for range r {
			p.Stages[i].Devices = append(p.Stages[i].Devices, next)
			next++
		}
	}
}

// tolerance is how far the weights of an engine may be from those of plain arithmetic.
func tolerance(e engine.Engine) float64 {
	if e.Float() == engine.Float64 {
		return 1e-12
	}
	return 1e-6
}

// tanhChain has as many tanh layers as stages want.
func tanhChain(pixels bool) chain {
	return newChain(4, pixels, link{out: 5, act: "tanh"}, link{out: 4, act: "tanh"}, link{out: 4, act: "relu"}, link{out: 3})
}

// Each stage of 1F1B-RR steps by the mean over its own replicas' minibatches (PipeDream §3.2, §3.3), whatever
// the other stages have, and at the end of the stream by the mean over those that are left.
func TestEachStageTakesTheMeanOverItsOwnReplicas(t *testing.T) {
	c := tanhChain(false)
	m := c.model(t)
	for name, e := range map[string]engine.Engine{"ref": testEngine(t), "torch": optionalTorch()} {
		if e == nil {
			continue
		}
		for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest} {
			for _, replicas := range [][]int{{1}, {3}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 1, 1}, {3, 1, 2}, {1, 3}, {2, 1, 1}} {
				for _, steps := range []int{5, 12, 13} { // 5 and 13 leave groups of 2 and 3 unfilled
					for _, again := range []bool{false, true} {
						config := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), len(replicas)), 3, 1, "1f1b-rr"), 3, steps)
						config.Optimizer.Momentum, config.Rate.Base = 0.9, 0.3
						config.Plan.Weights = string(policy)
						on(config.Plan, replicas...)
						for i := range config.Plan.Stages {
							config.Plan.Stages[i].Recompute = plan.AtBoundary(again)
						}
						twin := newAlone(c, config)
						if err := twin.train(steps); err != nil {
							t.Fatal(err)
						}
						if err := twin.weights().nearTo(train(t, config).Weights, tolerance(e)); err != nil {
							t.Errorf("%s, %s, %v, %d steps, recompute %v: %v", name, policy, replicas, steps, again, err)
						}
					}
				}
			}
		}
	}
}
