package run

import (
	"math"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
)

// alone trains a chain of layers that is cut into stages, one minibatch after the other. Each stage uses the versions
// of its weights that the paper of the policy prescribes.
type alone struct {
	chain
	first      []int // first layer of each stage
	replicas   []int // number of replicas of each stage
	again      []bool
	policy     schedule.Policy
	split      bool
	micros     int // micro-batches per minibatch
	rows       int // rows per micro-batch
	clip       float64
	rate       optim.Rate
	optimizer  optim.Settings
	data       data.Split
	done       int        // steps before the current stream
	counts     values     // by parameter: how many updates it had before the current stream, as a list of one number
	apart      bool       // replicas average running statistics only at the end
	versions   [][]values // by stage, in the current stream
	memories   []memories // by stage
	sums       []values   // by stage: gradients of the current group's minibatches
	norms      []float64
	losses     []float64
	statistics statistics
}

// newAlone returns an alone that trains chain c as a run with the Config `of` should.
func newAlone(c chain, of Config) *alone {
	p := of.Plan
	a := &alone{
		chain: c, policy: schedule.Policy(p.Weights), split: p.Replication == string(schedule.Split),
		micros: p.MicroBatches, rows: p.MicroBatch,
		clip: of.Train.Clip, rate: of.Train.Rate, optimizer: of.Train.Optimizer, data: of.Data.Train,
		statistics: statistics{}, counts: values{}, apart: p.Schedule == "dp-async",
	}
	a.cut(p, c.initial(of.Model, of.Train.Seed, of.Engine.Float()), memories{})
	return a
}

// cut divides weights and optimizer states among the stages of a plan. A layer that stages divide belongs to the last
// of these stages.
func (a *alone) cut(p *plan.Plan, weights values, m memories) {
	n := len(p.Stages)
	a.first, a.replicas, a.again = nil, nil, nil
	a.versions, a.memories, a.sums = make([][]values, n), make([]memories, n), make([]values, n)
	for i, s := range p.Stages {
		a.first, a.replicas = append(a.first, s.FirstLayer), append(a.replicas, len(s.Devices))
		a.again = append(a.again, s.Recompute != plan.KeepAll)
		held, kept := values{}, memories{values{}, values{}}
		end := min(s.LastLayer+1, len(a.links))
		if i+1 < n {
			end = min(end, p.Stages[i+1].FirstLayer)
		}
		for l := s.FirstLayer; l < end; l++ {
			for _, name := range a.links[l].params() {
				held[name], kept.a[name], kept.b[name] = weights[name], m.a[name], m.b[name]
			}
		}
		a.versions[i], a.memories[i], a.sums[i] = []values{held.clone()}, memories{kept.a.clone(), kept.b.clone()}, values{}
	}
}

// resume continues under another plan with minibatches of the same size.
func (a *alone) resume(p *plan.Plan) {
	all := memories{values{}, values{}}
	for _, m := range a.memories {
		m.a.addTo(all.a)
		m.b.addTo(all.b)
	}
	a.policy = schedule.Policy(p.Weights)
	a.cut(p, a.weights(), all)
}

// of returns the layers of a stage. A stage with only the loss has none.
func (a *alone) of(stage int) []link {
	end := len(a.links)
	if stage+1 < len(a.first) {
		end = min(end, a.first[stage+1])
	}
	return a.links[min(a.first[stage], end):end]
}

// group returns how many minibatches one update of a stage averages. It is the number of its replicas if these take
// minibatches in turn (PipeDream §3.2). It is 1 if a minibatch has several micro-batches or a step ends in a flush.
func (a *alone) group(stage int) int {
	if a.flushes() || a.split || a.micros > 1 {
		return 1
	}
	return a.replicas[stage]
}

// depth returns how many minibatches a replica of a stage runs forward before its first backward. It is the number of
// workers from this stage to the last, divided by the stage's replicas and rounded up. On the input stage it is NOAM
// (PipeDream §3.2).
func (a *alone) depth(stage int) int {
	workers := 0
	for _, r := range a.replicas[stage:] {
		workers += r
	}
	return (workers + a.replicas[stage] - 1) / a.replicas[stage]
}

// reads returns the versions of a stage's weights for the forward and the backward of a minibatch. A replica alternates
// between one backward with its update and one forward. Its minibatches are counted from 0. The forward of its q-th
// minibatch begins after q - depth + 1 updates, and the backward begins after q updates.
func (a *alone) reads(stage, t int) (forward, backward int) {
	begun := func(i int) int { return max(0, t/a.group(i)-a.depth(i)+1) }
	switch a.policy {
	case schedule.Latest: // the newest version
		return begun(stage), t / a.group(stage)
	case schedule.Stash: // §3.3, weight stashing: the forward's version
		return begun(stage), begun(stage)
	case schedule.Vertical: // §3.3, vertical sync: the version of the input stage's weights
		seen := begun(0) * a.group(0)
		return seen / a.group(stage), seen / a.group(stage)
	case schedule.DoubleBuffered: // w(t+1) = w(t) - lr grad f(w(t-1))
		return max(0, t/a.group(stage)-1), max(0, t/a.group(stage)-1)
	}
	return t, t
}

// parts returns the rows of a micro-batch that a stage normalises together.
func (a *alone) parts(stage, rows int) []span {
	n := a.replicas[stage]
	if !a.split {
		n = 1
	}
	var out []span
	for k := range n {
		out = append(out, span{k * rows / n, (k + 1) * rows / n})
	}
	return out
}

// gradients adds the gradients of a batch's mean loss to `sums`, by stage.
func (a *alone) gradients(batch int, forward, backward, sums []values) error {
	x, target, err := a.batch(a.data, batch, a.micros*a.rows)
	if err != nil {
		return err
	}
	loss := 0.0
	for m := range a.micros {
		from, to := m*a.rows, (m+1)*a.rows
		made, grads := make([][][]float64, len(a.links)+1), make([][][]float64, len(a.links)+1) // index 0 is the input
		made[0] = x[from:to]
		all := make([][]*kept, len(a.first))
		for i := range a.first {
			all[i] = a.through(i, forward[i], made)
			a.statistics.note(a.of(i), all[i])
		}
		g, total, _ := crossEntropy(made[len(a.links)], target[from:to])
		loss += total / float64(a.micros*a.rows)
		for _, row := range g {
			for c := range row {
				row[c] /= float64(a.micros * a.rows)
			}
		}
		grads[len(a.links)] = g
		for i := len(a.first) - 1; i >= 0; i-- {
			if a.again[i] {
				all[i] = a.through(i, backward[i], made)
			}
			links := a.of(i)
			for l := len(links) - 1; l >= 0; l-- {
				at := a.first[i] + l
				back, own := links[l].backward(backward[i], all[i][l], grads[at+1])
				own.addTo(sums[i])
				grads[at] = plus(grads[at], back)
				if links[l].add != "" {
					grads[a.index(links[l].add)+1] = plus(grads[a.index(links[l].add)+1], back)
				}
			}
		}
	}
	a.losses = append(a.losses, loss)
	return nil
}

// through runs the forwards of a stage's layers. It reads their inputs from `made`, and stores their outputs there.
func (a *alone) through(stage int, w values, made [][][]float64) []*kept {
	var all []*kept
	for l, link := range a.of(stage) {
		at := a.first[stage] + l
		k := link.forward(w, made[at], a.parts(stage, len(made[at])))
		if link.add != "" {
			k.y = plus(made[at], made[a.index(link.add)+1])
		}
		all, made[at+1] = append(all, k), k.y
	}
	return all
}

// train makes this many steps in a stream. If `every` is above 0, it drains the pipeline after each `every` steps, and
// begins a new stream.
func (a *alone) train(steps, every int) error {
	if every > 0 && every < steps {
		for _, n := range []int{every, steps - every} {
			if err := a.train(n, every); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range a.first { // each stream begins with the newest weights
		a.versions[i] = a.versions[i][len(a.versions[i])-1:]
	}
	for t := range steps {
		forward, backward := make([]values, len(a.first)), make([]values, len(a.first))
		for i := range a.first {
			f, b := a.reads(i, t)
			forward[i], backward[i] = a.versions[i][f], a.versions[i][b]
		}
		if err := a.gradients(a.done+t, forward, backward, a.sums); err != nil {
			return err
		}
		a.update(t, t == steps-1)
	}
	a.done += steps
	for i, v := range a.versions {
		for name := range v[0] {
			a.counts[name] = []float64{a.count(name) + float64(len(a.versions[i])-1)}
		}
	}
	return nil
}

// count returns the number of updates of a parameter before the current stream.
func (a *alone) count(name string) float64 {
	if n := a.counts[name]; n != nil {
		return n[0]
	}
	return 0
}

// update updates the stages whose group of minibatches ends with minibatch t, by the mean over the group. If `last` is
// set, it also updates the stages whose group is incomplete.
func (a *alone) update(t int, last bool) {
	means := map[int]values{}
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
	by := 1.0
	if norm := total.norm(); a.clip > 0 { // Pascanu et al., ICML 2013, Algorithm 1
		a.norms = append(a.norms, norm)
		by = math.Min(1, a.clip/norm)
	}
	for i, mean := range means {
		for name := range mean {
			mean[name] = append([]float64(nil), total[name]...) // the sum over all stages that use the parameter
		}
		mean.scale(by)
		updates := len(a.versions[i])
		now, count := a.versions[i][updates-1], func(name string) float64 { return a.count(name) + float64(updates) }
		for name, x := range now {
			if mean[name] == nil {
				mean[name] = make([]float64, len(x))
			}
		}
		a.versions[i] = append(a.versions[i], a.memories[i].step(a.optimizer, now, mean, count, rateAt(a.rate, a.done+t)))
	}
}

// evaluate returns the mean loss of rows of test data, and the number of right predictions.
func (a *alone) evaluate(d data.Split, rows int, w, running values) (loss float64, correct int, err error) {
	x, target, err := a.batch(d, 0, rows)
	if err != nil {
		return 0, 0, err
	}
	made := [][][]float64{}
	for _, l := range a.links {
		switch {
		case l.add != "":
			x = plus(x, made[a.index(l.add)])
		case !l.norm:
			x = l.forward(w, x, nil).y
		}
		if made = append(made, x); !l.norm {
			continue
		}
		for r, row := range x {
			y := make([]float64, len(row))
			for c, v := range row {
				y[c] = w[l.name+".gain"][c]*(v-running[l.name+".mean"][c])/math.Sqrt(running[l.name+".variance"][c]+1e-5) +
					w[l.name+".shift"][c]
			}
			x[r] = y
		}
	}
	_, total, correct := crossEntropy(x, target)
	return total / float64(rows), correct, nil
}

// shown returns the weights that an evaluation uses.
func (a *alone) shown() values {
	out := a.weights()
	for i := range a.memories {
		for name, x := range a.memories[i].shown(a.optimizer, nil) {
			if x != nil {
				out[name] = x
			}
		}
	}
	return out
}

// weights returns the newest weights of all stages.
func (a *alone) weights() values {
	out := values{}
	for _, v := range a.versions {
		for name, x := range v[len(v)-1] {
			out[name] = x
		}
	}
	return out
}

// flushes reports whether a step ends before the next one begins.
func (a *alone) flushes() bool { return a.policy == schedule.Sync || a.policy == "" }

// on gives stage i of a plan replicas[i] workers, numbered in order.
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
