package run

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/run/optim"
)

// Training as the papers write it, on slices of float64: forward, backward, update. No stage, Program, engine,
// autograd or optimizer of millrace's takes part; only the data and the first weights are the run's.

// link is one layer of a chain that this file can differentiate by itself.
type link struct {
	name string
	norm bool // batch norm; else dense
	out  int  // width of a dense layer
	act  string
	tied string // the layer whose weight it shares
	in   int
}

func (l link) weight() string {
	if l.tied != "" {
		return l.tied + ".weight"
	}
	return l.name + ".weight"
}

// params is the names of what a layer learns.
func (l link) params() []string {
	if l.norm {
		return []string{l.name + ".gain", l.name + ".shift"}
	}
	return []string{l.weight(), l.name + ".bias"}
}

// values is numbers by parameter.
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

// kept is what a layer's backward needs of its forward.
type kept struct {
	x, y, hat [][]float64
	parts     []part2     // of a norm: the rows that are normalised together
	spread    [][]float64 // of a norm, by part: 1 over the standard deviation
	means     [][]float64 // by part
	variances [][]float64 // by part, over one row less
}

// part2 is rows from, to left out.
type part2 struct{ from, to int }

// forward is y = act(x W^T + b), or batch norm (Ioffe and Szegedy, ICML 2015, Algorithm 1).
func (l link) forward(w values, x [][]float64, parts []part2) *kept {
	k := &kept{x: x, parts: parts}
	if l.norm {
		return l.normalise(w, k)
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

// backward is the gradients of what the layer read and of what it learns, through the weights w.
func (l link) backward(w values, k *kept, dy [][]float64) (dx [][]float64, grads values) {
	if l.norm {
		return l.normaliseBack(w, k, dy)
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

// crossEntropyBack is the gradient of -log softmax(x)[target], summed over the rows.
func crossEntropyBack(x [][]float64, target []int64) [][]float64 {
	var out [][]float64
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
		g[target[r]]--
		out = append(out, g)
	}
	return out
}

// chain is a model of links on rows of `inputs` numbers, and its description; on torch as convolutions of one
// pixel where it normalises, because batch norm is of images.
type chain struct {
	inputs int
	links  []link
	pixels bool
}

// newChain makes a chain of these layers behind an input of so many numbers, the last one's outputs being classes.
func newChain(inputs int, pixels bool, links ...link) chain {
	c := chain{inputs: inputs, pixels: pixels}
	in := inputs
	for i, l := range links {
		l.name, l.in = fmt.Sprintf("n%d", i), in
		if l.norm {
			l.out = in
		}
		in = l.out
		c.links = append(c.links, l)
	}
	return c
}

// model is the chain as millrace trains it. A chain of pixels ends with a layer more, which makes rows of images,
// in front of its loss.
func (c chain) model(t testing.TB) *model.Model {
	t.Helper()
	var b strings.Builder
	shape := fmt.Sprint(c.inputs)
	if c.pixels {
		shape += ", 1, 1"
	}
	fmt.Fprintf(&b, "name: chain\ninputs:\n- {name: input, shape: [%s], dtype: float}\n- {name: target, shape: [], dtype: int}\nlayers:\n", shape)
	from := "input"
	for _, l := range c.links {
		act := l.act
		if act == "" {
			act = "none"
		}
		switch {
		case l.norm:
			fmt.Fprintf(&b, "- {name: %s, kind: batch_norm, from: [%s]}\n", l.name, from)
		case c.pixels:
			fmt.Fprintf(&b, "- {name: %s, kind: conv2d, from: [%s], channels: %d, kernel: 1, padding: 0, activation: %s}\n", l.name, from, l.out, act)
		default:
			fmt.Fprintf(&b, "- {name: %s, kind: dense, from: [%s], width: %d, activation: %s}\n", l.name, from, l.out, act)
		}
		from = l.name
	}
	if c.pixels {
		fmt.Fprintf(&b, "- {name: rows, kind: flatten, from: [%s]}\n", from)
		from = "rows"
	}
	fmt.Fprintf(&b, "- {name: loss, kind: cross_entropy, from: [%s, target]}\n", from)
	m, err := model.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	for _, l := range c.links {
		if l.tied != "" {
			m.Layers[m.Index(l.name)].Params[0].Tied = l.weight()
		}
	}
	return m
}

// initial is the first weights of a run, as wide as its engine keeps them.
func (c chain) initial(m *model.Model, seed uint64, float engine.DType) values {
	out := values{}
	for _, l := range c.links {
		at := m.Index(l.name)
		for i, p := range m.Layers[at].Params {
			if p.Tied != "" || p.Buffer {
				continue
			}
			x := nn.InitialValues(p, at, i, seed)
			for k := range x {
				if float == engine.Float32 {
					x[k] = float64(float32(x[k]))
				}
			}
			out[l.name+"."+p.Name] = x
		}
	}
	return out
}

// batch is one batch of the data as rows.
func (c chain) batch(d data.Split, step, rows int) (x [][]float64, target []int64, err error) {
	b, err := d.Batch(step, rows, 0, rows)
	if err != nil {
		return nil, nil, err
	}
	for r := range rows {
		row := make([]float64, c.inputs)
		for i := range row {
			row[i] = float64(b.Input.Floats[r*c.inputs+i])
		}
		x = append(x, row)
	}
	return x, b.Target.Ints, nil
}

// memories is what an optimizer keeps of each parameter.
type memories struct{ a, b values }

// step is one update, as the optimizers' papers write it: count is the updates of these parameters, this one
// included. Biases, gains and shifts do not decay.
func (m *memories) step(s optim.Settings, w, grads values, count int, rate float64) values {
	if m.a == nil {
		m.a, m.b = values{}, values{}
	}
	out := values{}
	for name, x := range w {
		if m.a[name] == nil {
			m.a[name], m.b[name] = make([]float64, len(x)), make([]float64, len(x))
		}
		decay := s.WeightDecay
		if !strings.HasSuffix(name, ".weight") {
			decay = 0
		}
		y := make([]float64, len(x))
		for k, p := range x {
			y[k] = m.number(s, name, k, p, grads[name][k], decay, count, rate)
		}
		out[name] = y
	}
	return out
}

// number is one parameter's next value.
func (m *memories) number(s optim.Settings, name string, k int, p, g, decay float64, count int, rate float64) float64 {
	a, b := &m.a[name][k], &m.b[name][k]
	switch s.Kind {
	case optim.SGD: // Sutskever et al., ICML 2013
		g += decay * p
		*a = s.Momentum**a + g
		if s.Nesterov {
			return p - rate*(g+s.Momentum**a)
		}
		return p - rate**a
	case optim.Adam: // Kingma and Ba, ICLR 2015, Algorithm 1
		g += decay * p
	case optim.AdamW: // Loshchilov and Hutter, ICLR 2019, Algorithm 2
		p -= rate * decay * p
	}
	*a = s.Beta1**a + (1-s.Beta1)*g
	*b = s.Beta2**b + (1-s.Beta2)*g*g
	mean, variance := *a/(1-math.Pow(s.Beta1, float64(count))), *b/(1-math.Pow(s.Beta2, float64(count)))
	return p - rate*mean/(math.Sqrt(variance)+s.Epsilon)
}

// rateAt is the learning rate of a step.
func rateAt(r optim.Rate, step int) float64 {
	if step < r.Warmup {
		return r.Base / float64(r.Warmup+1) * float64(step+1)
	}
	at := step - r.Warmup
	done := math.Min(1, float64(at)/float64(max(1, r.Total-r.Warmup)))
	switch r.Kind {
	case optim.StepDecay:
		rate := r.Base
		for ; at >= r.Every; at -= r.Every {
			rate *= r.Factor
		}
		return rate
	case optim.Cosine:
		return r.Floor + 0.5*(r.Base-r.Floor)*(1+math.Cos(math.Pi*done))
	case optim.Polynomial:
		return (r.Base-r.Floor)*math.Pow(1-done, r.Power) + r.Floor
	}
	return r.Base
}

// nearTo says where weights of a run are farther than tolerance, of the largest number of each parameter and of
// 1 at least, from those that are right.
func (v values) nearTo(got map[string]Weight, tolerance float64) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		want := v[name]
		w, here := got[name]
		if !here {
			return fmt.Errorf("%s is not there", name)
		}
		x := numbersOf(w)
		if len(x) != len(want) {
			return fmt.Errorf("%s has %d numbers; want %d", name, len(x), len(want))
		}
		size, off := 1.0, 0.0
		for k := range x {
			size, off = max(size, math.Abs(want[k])), max(off, math.Abs(x[k]-want[k]))
		}
		if !(off <= tolerance*size) {
			return fmt.Errorf("%s is %.2g off, of at most %.2g", name, off, size)
		}
	}
	return nil
}
