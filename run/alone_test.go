package run

import (
	"maps"
	"math"
	"slices"
)

// This file and the other alone_ files contain training as the papers describe it, on slices of float64: forward,
// backward, update. It uses no stage, Program, engine, autograd or optimizer of millrace. Only the data and the first
// weights are the run's.

// link is one layer of a chain that this file can differentiate.
type link struct {
	name string
	norm bool // batch norm instead of dense
	out  int  // width of a dense layer
	act  string
	tied string // the layer whose weight it shares
	add  string // an earlier layer; this layer only adds that layer's output to its own input
	in   int
	rows *rows // if stages divide the dense layer: the rows of this part
}

func (l link) weight() string {
	if l.tied != "" {
		return l.tied + ".weight"
	}
	return l.name + ".weight"
}

// params returns the names of a layer's parameters.
func (l link) params() []string {
	switch {
	case l.add != "":
		return nil
	case l.norm:
		return []string{l.name + ".gain", l.name + ".shift"}
	case l.rows != nil:
		weight, bias := l.partNames()
		return []string{weight, bias}
	}
	return []string{l.weight(), l.name + ".bias"}
}

// values holds numbers by parameter.
type values map[string][]float64

func (v values) clone() values {
	out := values{}
	for name, x := range v {
		out[name] = append([]float64(nil), x...)
	}
	return out
}

// addTo adds v to a sum.
func (v values) addTo(sum values) {
	for name, x := range v {
		if sum[name] == nil {
			sum[name] = make([]float64, len(x))
		}
		for k := range x {
			sum[name][k] += x[k]
		}
	}
}

func (v values) scale(by float64) {
	for _, x := range v {
		for k := range x {
			x[k] *= by
		}
	}
}

// kept is what a layer's backward needs from its forward.
type kept struct {
	x, y, hat [][]float64
	parts     []span      // for a norm: the rows that are normalised together
	spread    [][]float64 // for a norm, by part: 1 divided by the standard deviation
	means     [][]float64 // by part
	variances [][]float64 // by part: unbiased, so divided by the number of rows less one
}

// norm returns the root of the sum of squares.
func (v values) norm() float64 {
	square := 0.0
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, x := range v[name] {
			square += x * x
		}
	}
	return math.Sqrt(square)
}

// span is the range of rows [from, to).
type span struct{ from, to int }

// forward computes y = act(x W^T + b), or batch norm (Ioffe and Szegedy, ICML 2015, Algorithm 1).
func (l link) forward(w values, x [][]float64, parts []span) *kept {
	k := &kept{x: x, parts: parts}
	if l.add != "" {
		return k
	}
	if l.norm {
		return l.normalise(w, k)
	}
	if l.rows != nil {
		return l.part(w, k)
	}
	weight, bias := w[l.weight()], w[l.name+".bias"]
	for _, row := range x {
		y := make([]float64, l.out)
		for o := range y {
			y[o] = bias[o]
			for i, v := range row {
				y[o] += weight[o*l.in+i] * v
			}
			switch l.act {
			case "tanh":
				y[o] = math.Tanh(y[o])
			case "relu":
				y[o] = max(0, y[o])
			}
		}
		k.y = append(k.y, y)
	}
	return k
}

func (l link) normalise(w values, k *kept) *kept {
	gain, shift := w[l.name+".gain"], w[l.name+".shift"]
	for _, p := range k.parts {
		n := float64(p.to - p.from)
		mean, variance, spread := make([]float64, l.in), make([]float64, l.in), make([]float64, l.in)
		for _, row := range k.x[p.from:p.to] {
			for c, v := range row {
				mean[c] += v / n
			}
		}
		for _, row := range k.x[p.from:p.to] {
			for c, v := range row {
				variance[c] += (v - mean[c]) * (v - mean[c]) / n
			}
		}
		for c := range spread {
			spread[c] = 1 / math.Sqrt(variance[c]+1e-5)
			variance[c] *= n / (n - 1)
		}
		for _, row := range k.x[p.from:p.to] {
			hat, y := make([]float64, l.in), make([]float64, l.in)
			for c, v := range row {
				hat[c] = (v - mean[c]) * spread[c]
				y[c] = gain[c]*hat[c] + shift[c]
			}
			k.hat, k.y = append(k.hat, hat), append(k.y, y)
		}
		k.spread, k.means, k.variances = append(k.spread, spread), append(k.means, mean), append(k.variances, variance)
	}
	return k
}

// backward computes, with the weights w, the gradients of the layer's input and parameters.
func (l link) backward(w values, k *kept, dy [][]float64) (dx [][]float64, grads values) {
	if l.add != "" {
		return dy, nil
	}
	if l.norm {
		return l.normaliseBack(w, k, dy)
	}
	if l.rows != nil {
		return l.partBack(w, k, dy)
	}
	weight := w[l.weight()]
	gw, gb := make([]float64, l.out*l.in), make([]float64, l.out)
	for r, row := range dy {
		back := make([]float64, l.in)
		for o, g := range row {
			switch y := k.y[r][o]; {
			case l.act == "tanh":
				g *= 1 - y*y
			case l.act == "relu" && y <= 0:
				g = 0
			}
			gb[o] += g
			for i, v := range k.x[r] {
				gw[o*l.in+i] += g * v
				back[i] += g * weight[o*l.in+i]
			}
		}
		dx = append(dx, back)
	}
	return dx, values{l.weight(): gw, l.name + ".bias": gb}
}

func (l link) normaliseBack(w values, k *kept, dy [][]float64) (dx [][]float64, grads values) {
	gain := w[l.name+".gain"]
	dGain, dShift := make([]float64, l.in), make([]float64, l.in)
	for i, p := range k.parts {
		n := float64(p.to - p.from)
		along, total := make([]float64, l.in), make([]float64, l.in)
		for r := p.from; r < p.to; r++ {
			for c, g := range dy[r] {
				along[c] += g * k.hat[r][c]
				total[c] += g
			}
		}
		for r := p.from; r < p.to; r++ {
			back := make([]float64, l.in)
			for c, g := range dy[r] {
				back[c] = gain[c] * k.spread[i][c] / n * (n*g - total[c] - k.hat[r][c]*along[c])
			}
			dx = append(dx, back)
		}
		for c := range along {
			dGain[c] += along[c]
			dShift[c] += total[c]
		}
	}
	return dx, values{l.name + ".gain": dGain, l.name + ".shift": dShift}
}

// plus returns a + b, row by row; nil counts as zero.
func plus(a, b [][]float64) [][]float64 {
	if a == nil {
		return b
	}
	var out [][]float64
	for r := range a {
		row := make([]float64, len(a[r]))
		for c := range row {
			row[c] = a[r][c] + b[r][c]
		}
		out = append(out, row)
	}
	return out
}

// crossEntropy returns the gradient of the sum over the rows of -log softmax(x)[target], the sum, and how many rows
// have the target on top.
func crossEntropy(x [][]float64, target []int64) (out [][]float64, loss float64, correct int) {
	for r, row := range x {
		top, sum := math.Inf(-1), 0.0
		for _, v := range row {
			top = max(top, v)
		}
		g := make([]float64, len(row))
		for c, v := range row {
			g[c] = math.Exp(v - top)
			sum += g[c]
		}
		for c := range g {
			g[c] /= sum
		}
		loss -= math.Log(g[target[r]])
		if row[target[r]] == top {
			correct++
		}
		g[target[r]]--
		out = append(out, g)
	}
	return out, loss, correct
}
