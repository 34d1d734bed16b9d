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
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
)

// chain is a model whose layers are links. Its input is rows of `inputs` numbers. If pixels is set, its dense layers
// are written as convolutions of one pixel, because torch's batch norm needs images.
type chain struct {
	inputs int
	links  []link
	pixels bool
}

// newChain returns a chain of these layers. Its input is `inputs` numbers for each row, and the outputs of its last
// layer are the scores of the classes.
func newChain(inputs int, pixels bool, links ...link) chain {
	c := chain{inputs: inputs, pixels: pixels}
	in := inputs
	for i, l := range links {
		l.name, l.in = fmt.Sprintf("n%d", i), in
		if l.norm || l.add != "" {
			l.out = in
		}
		in = l.out
		c.links = append(c.links, l)
	}
	return c
}

// index returns the position of a layer. If stages divide the layer, it is the position of its last part.
func (c chain) index(name string) int {
	at := slices.IndexFunc(c.links, func(l link) bool { return l.name == name })
	for at+1 < len(c.links) && at >= 0 && c.links[at+1].name == name {
		at++
	}
	return at
}

// model returns the chain as a model of millrace. If pixels is set, the model has one more layer before its loss: it
// turns images into rows.
func (c chain) model(t testing.TB) *model.Model {
	t.Helper()
	var b strings.Builder
	shape := fmt.Sprint(c.inputs)
	if c.pixels {
		shape += ", 1, 1"
	}
	fmt.Fprintf(&b, "name: chain\ninputs:\n- {name: input, shape: [%s], dtype: float}\n"+
		"- {name: target, shape: [], dtype: int}\nlayers:\n", shape)
	from := "input"
	for _, l := range c.links {
		act := l.act
		if act == "" {
			act = "none"
		}
		switch {
		case l.add != "":
			fmt.Fprintf(&b, "- {name: %s, kind: add, from: [%s, %s]}\n", l.name, from, l.add)
		case l.norm:
			fmt.Fprintf(&b, "- {name: %s, kind: batch_norm, from: [%s]}\n", l.name, from)
		case c.pixels:
			fmt.Fprintf(&b, "- {name: %s, kind: conv2d, from: [%s], channels: %d, kernel: 1, padding: 0, activation: %s}\n",
				l.name, from, l.out, act)
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

// initial returns the first weights of a run, at the engine's precision.
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

// batch returns one batch of the data as rows.
func (c chain) batch(d data.Split, step, rows int) (x [][]float64, target []int64, err error) {
	b, err := d.Batch(step, rows, 0, rows)
	if err != nil {
		return nil, nil, err
	}
	for r := range rows {
		row := make([]float64, c.inputs)
		for i := range row {
			row[i] = float64(b["input"].Floats[r*c.inputs+i])
		}
		x = append(x, row)
	}
	return x, b["target"].Ints, nil
}

// memories holds the optimizer's state by parameter: up to two numbers, a and b, for each number of the parameter.
type memories struct{ a, b values }

// step makes one update by the equations of the optimizers' papers. `count` returns the number of updates of a
// parameter, including this one. Biases, gains and shifts do not decay.
func (m *memories) step(s optim.Settings, w, grads values, count func(name string) float64, rate float64) values {
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
		local := 1.0
		if s.Kind == optim.LARS && strings.HasSuffix(name, ".weight") {
			if ofX, ofG := length(x), length(grads[name]); ofX > 0 && ofG > 0 {
				local = s.Trust * ofX / (ofG + decay*ofX)
			}
		}
		y := make([]float64, len(x))
		for k, p := range x {
			y[k] = m.number(s, name, k, p, grads[name][k], decay, count(name), rate, local)
		}
		out[name] = y
	}
	return out
}

// length returns the Euclidean norm.
func length(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// shown returns the weights for evaluation: their averages m.a under ASGD, and w otherwise.
func (m *memories) shown(s optim.Settings, w values) values {
	if s.Kind == optim.ASGD && m.a != nil {
		return m.a
	}
	return w
}

// number returns the value of number k of a parameter after the next update.
func (m *memories) number(s optim.Settings, name string, k int, p, g, decay, count, rate, local float64) float64 {
	a, b := &m.a[name][k], &m.b[name][k]
	switch s.Kind {
	case optim.SGD: // Sutskever et al., ICML 2013
		g += decay * p
		*a = s.Momentum**a + g
		if s.Nesterov {
			return p - rate*(g+s.Momentum**a)
		}
		return p - rate**a
	case optim.LARS: // You et al., 2017, Algorithm 1
		*a = s.Momentum**a + rate*local*(g+decay*p)
		return p - *a
	case optim.ASGD: // Polyak and Juditsky, 1992: the mean of the weights after each update from number AverageFrom on
		p -= rate * (g + decay*p)
		if n := count - float64(s.AverageFrom) + 1; n > 1 {
			*a += (p - *a) / n
		} else {
			*a = p
		}
		return p
	case optim.Adam: // Kingma and Ba, ICLR 2015, Algorithm 1
		g += decay * p
	case optim.AdamW: // Loshchilov and Hutter, ICLR 2019, Algorithm 2
		p -= rate * decay * p
	}
	*a = s.Beta1**a + (1-s.Beta1)*g
	*b = s.Beta2**b + (1-s.Beta2)*g*g
	mean, variance := *a/(1-math.Pow(s.Beta1, count)), *b/(1-math.Pow(s.Beta2, count))
	return p - rate*mean/(math.Sqrt(variance)+s.Epsilon)
}

// rateAt returns the learning rate of a step.
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

// near returns an error if numbers of a run differ from the expected ones.
func near(what string, got, want []float64, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d numbers; want %d", what, len(got), len(want))
	}
	for k, x := range got {
		if !(math.Abs(x-want[k]) <= tolerance*max(1, math.Abs(want[k]))) {
			return fmt.Errorf("%s: number %d is %v; want %v", what, k, x, want[k])
		}
	}
	return nil
}

// nearTo returns an error if a run's weights differ from the expected ones by more than tolerance. For each parameter,
// the tolerance is relative to its largest number, or to 1 if that is larger.
func (v values) nearTo(got map[string]process.Weight, tolerance float64) error {
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
