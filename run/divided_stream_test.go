package run

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
)

// rows is the part of a dense layer on one stage of the twin: the weight's rows in `span`. A stage sends the layer's
// input, followed by all outputs computed so far. The last part's stage applies the activation.
type rows struct {
	span
	reads int // width of the layer's input
	last  bool
}

// partNames returns the names of a part's parameters. Weight decay applies only to weights, whose names end in .weight.
func (l link) partNames() (weight, bias string) {
	at := fmt.Sprintf("%s[%d:%d]", l.name, l.rows.from, l.rows.to)
	return at + ".weight", at + ".bias"
}

// part is the forward of a part of a layer.
func (l link) part(w values, k *kept) *kept {
	r := l.rows
	nameW, nameB := l.partNames()
	for _, row := range k.x {
		y := slices.Clone(row)
		for o := range r.to - r.from {
			v := w[nameB][o]
			for i, x := range row[:r.reads] {
				v += w[nameW][o*r.reads+i] * x
			}
			y = append(y, v)
		}
		if r.last {
			y = y[r.reads:]
			for o := range y {
				switch l.act {
				case "tanh":
					y[o] = math.Tanh(y[o])
				case "relu":
					y[o] = max(0, y[o])
				}
			}
		}
		k.y = append(k.y, y)
	}
	return k
}

// partBack is the backward of a part of a layer.
func (l link) partBack(w values, k *kept, dy [][]float64) (dx [][]float64, grads values) {
	r := l.rows
	nameW, nameB := l.partNames()
	gw, gb := make([]float64, len(w[nameW])), make([]float64, len(w[nameB]))
	for at, row := range dy {
		g := slices.Clone(row)
		if r.last {
			for o, y := range k.y[at] {
				switch {
				case l.act == "tanh":
					g[o] *= 1 - y*y
				case l.act == "relu" && y <= 0:
					g[o] = 0
				}
			}
			g = append(make([]float64, r.reads), g...) // zeros for the input, which no later layer reads
		}
		back := slices.Clone(g[:r.reads+r.from])
		for o, own := range g[r.reads+r.from:] {
			gb[o] += own
			for i, x := range k.x[at][:r.reads] {
				gw[o*r.reads+i] += own * x
				back[i] += own * w[nameW][o*r.reads+i]
			}
		}
		dx = append(dx, back)
	}
	return dx, values{nameW: gw, nameB: gb}
}

// inParts returns the chain with its layers divided at these borders, the plan whose stages begin there, and the
// divided weights.
func (c chain) inParts(p *plan.Plan, at []border, weights values) (chain, *plan.Plan, values) {
	parts, own := chain{inputs: c.inputs}, *p
	own.Stages = slices.Clone(p.Stages)
	first := []int{0}
	for i, l := range c.links {
		ends := []int{}
		for _, b := range at {
			if b.layer == i && b.part > 0 {
				ends = append(ends, int(math.Round(b.part*float64(l.out))))
				first = append(first, len(parts.links)+len(ends))
			} else if b.layer == i {
				first = append(first, len(parts.links))
			}
		}
		if len(ends) == 0 {
			parts.links = append(parts.links, l)
			continue
		}
		from := 0
		for _, to := range append(ends, l.out) {
			one := l
			one.rows = &rows{span: span{from, to}, reads: l.in, last: to == l.out}
			nameW, nameB := one.partNames()
			weights[nameW] = slices.Clone(weights[l.name+".weight"][from*l.in : to*l.in])
			weights[nameB] = slices.Clone(weights[l.name+".bias"][from:to])
			parts.links = append(parts.links, one)
			from = to
		}
		delete(weights, l.name+".weight")
		delete(weights, l.name+".bias")
	}
	for i := range own.Stages {
		s := &own.Stages[i]
		s.FirstLayer, s.LastLayer, s.FirstFraction, s.LastFraction = first[i], len(parts.links), 0, 0
		if i+1 < len(first) {
			s.LastLayer = first[i+1] - 1
		}
	}
	return parts, &own, weights
}

// joined returns weights with the parts of layers joined, in order.
func (c chain) joined(v values) values {
	out := values{}
	for _, l := range c.links {
		if l.rows == nil {
			for _, name := range l.params() {
				out[name] = v[name]
			}
			continue
		}
		nameW, nameB := l.partNames()
		out[l.name+".weight"] = append(out[l.name+".weight"], v[nameW]...)
		out[l.name+".bias"] = append(out[l.name+".bias"], v[nameB]...)
	}
	return out
}

// joinRows replaces rows of parameters by the whole parameters.
func joinRows(all map[string]process.Weight) {
	rows := map[string][]string{}
	for name := range all {
		if base, _, is := strings.Cut(name, "["); is {
			rows[base] = append(rows[base], name)
		}
	}
	for base, names := range rows {
		first := func(name string) (from int) {
			fmt.Sscanf(name[len(base):], "[%d:", &from)
			return from
		}
		slices.SortFunc(names, func(a, b string) int { return first(a) - first(b) })
		whole := process.Weight{DType: all[names[0]].DType, Shape: slices.Clone(all[names[0]].Shape)}
		whole.Shape[0] = 0
		for _, name := range names {
			whole.Data, whole.Shape[0] = append(whole.Data, all[name].Data...), whole.Shape[0]+all[name].Shape[0]
			delete(all, name)
		}
		all[base] = whole
	}
}

// Stages that divide layers train in a stream as the stream's paper says. Each stage has its own versions of its rows
// of the weights. That holds under every policy, with recompute, replicas and every element-wise optimizer.
func TestDividedLayersInAStream(t *testing.T) {
	e := testEngine(t)
	for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest, schedule.DoubleBuffered} {
		for i, x := range []struct {
			at       []border
			replicas []int
			again    plan.Recompute
		}{
			{[]border{{1, 0.25}}, []int{1, 1}, plan.KeepAll},
			{[]border{{0, 0.4}, {1, 0.5}}, []int{1, 1, 1}, plan.KeepInput},
			{[]border{{1, 0.25}, {1, 0.75}, {4, 1. / 3}}, []int{1, 1, 1, 1}, plan.KeepAll},
			{[]border{{2, 0.5}}, []int{2, 2}, plan.KeepInput},
			{[]border{{1, 0.5}, {3, 0}}, []int{2, 2, 1}, plan.KeepAll},
		} {
			for k, optimizer := range optimizers {
				if optimizer.Kind == optim.LARS {
					continue
				}
				c := denseChain()
				m := c.model(t)
				config := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), len(x.replicas)), 2, 1, "1f1b-rr"), 3, 13)
				config.Train.Optimizer, config.Train.Rate = optimizer, rates[k%len(rates)]
				config.Plan.Weights = string(policy)
				on(config.Plan, x.replicas...)
				divide(config.Plan, len(m.Layers), x.at...)
				for s := range config.Plan.Stages {
					config.Plan.Stages[s].Recompute = x.again
				}
				if _, err := programs.Build(config.Plan, nil, false, config.Train.Steps); err != nil {
					if policy != schedule.DoubleBuffered { // two versions of the weights do not suffice for all cases
						t.Fatal(err)
					}
					continue
				}
				twin := newAlone(c, config)
				parts, own, weights := c.inParts(config.Plan, x.at, c.initial(m, config.Train.Seed, e.Float()))
				twin.chain = parts
				twin.cut(own, weights, memories{values{}, values{}})
				if err := twin.train(config.Train.Steps, 0); err != nil {
					t.Fatal(err)
				}
				got := train(t, config)
				if err := parts.joined(twin.weights()).nearTo(got.Weights, tolerance(e)); err != nil {
					t.Errorf("%s, case %d, %+v: %v", policy, i, optimizer, err)
				}
				if err := near("losses", losses(got.Timeline), twin.losses, tolerance(e)); err != nil {
					t.Errorf("%s, case %d, %+v: %v", policy, i, optimizer, err)
				}
			}
		}
	}
}
