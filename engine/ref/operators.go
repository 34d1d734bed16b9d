package ref

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

func init() {
	operators["millrace::linear"] = linear
	operators["aten::data"] = func(c *call) []value {
		x := c.floats(0, false)
		if c.err != nil {
			return nil
		}
		c.same = x
		return nil
	}
	operators["aten::relu"] = unary(func(x float64) float64 { return max(x, 0) }, func(x, _, g float64) float64 {
		if x > 0 {
			return g
		}
		return 0
	})
	operators["aten::tanh"] = unary(math.Tanh, func(_, y, g float64) float64 { return g * (1 - y*y) })
	operators["aten::gelu"] = unary(func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) },
		func(x, _, g float64) float64 {
			return g * (0.5*(1+math.Erf(x/math.Sqrt2)) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi))
		})
	operators["aten::add.Tensor"] = func(c *call) []value {
		scale := c.number(2, 1)
		return binary2(c, func(a, b float64) float64 { return a + scale*b },
			func(_, _, g float64) float64 { return g }, func(_, _, g float64) float64 { return g * scale })
	}
	operators["aten::mul.Tensor"] = func(c *call) []value {
		if a, b := c.floats(0, false), c.floats(1, false); c.err == nil && b.node == nil && stretches(b.shape, a.shape) {
			c.args = []any{a, c.d.stretched(c, b, a.shape)}
		}
		return binary2(c, func(a, b float64) float64 { return a * b },
			func(_, b, g float64) float64 { return g * b }, func(a, _, g float64) float64 { return g * a })
	}
	operators["aten::reshape"] = reshape
	operators["aten::view"] = reshape
	operators["aten::cat"] = cat
	operators["aten::cross_entropy_loss"] = crossEntropy
	operators["aten::argmax"] = argmax
	operators["aten::eq.Tensor"] = equal
	operators["aten::sum"] = sum
}

// linear computes y = x W^T + b over the last dimension.
func linear(c *call) []value {
	x, w, b := c.floats(0, false), c.floats(1, false), c.floats(2, true)
	if c.err != nil {
		return nil
	}
	if len(w.shape) != 2 || len(x.shape) == 0 || x.shape[len(x.shape)-1] != w.shape[1] ||
		b != nil && !slices.Equal(b.shape, w.shape[:1]) {
		c.fail("x of shape %v and weight of shape %v do not fit", x.shape, w.shape)
		return nil
	}
	n, k := int(w.shape[0]), int(w.shape[1])
	rows := int(count(x.shape)) / max(k, 1)
	shape := slices.Clone(x.shape)
	shape[len(shape)-1] = int64(n)
	y := c.d.fresh(engine.Float64, shape)
	xs, ws, bs := x.value.floats, w.value.floats, make([]float64, 0)
	if b != nil {
		bs = b.value.floats
	}
	c.loop(func() {
		for r := range rows {
			for o := range n {
				s := 0.0
				for i := range k {
					s += xs[r*k+i] * ws[o*k+i]
				}
				if len(bs) > 0 {
					s += bs[o]
				}
				y.floats[r*n+o] = s
			}
		}
	})
	c.inputs, c.saved, c.weights = []*Tensor{x, w, b}, []value{x.value, w.value}, []int{1, 2}
	d := c.d
	c.back = func(node *node, g value) []*value {
		x, w := node.saved[0], node.saved[1]
		out := make([]*value, 3)
		// gradient makes the gradient of input i, if it is wanted. The function `add` adds the contribution of output o
		// in row r.
		gradient := func(i int, shape []int64, add func(to []float64, r, o int)) {
			if node.inputs[i] == nil {
				return
			}
			v := d.fresh(engine.Float64, shape)
			d.issue(func() {
				for r := range rows {
					for o := range n {
						add(v.floats, r, o)
					}
				}
			})
			out[i] = &v
		}
		gradient(0, x.shape, func(gx []float64, r, o int) {
			for i := range k {
				gx[r*k+i] += g.floats[r*n+o] * w.floats[o*k+i]
			}
		})
		gradient(1, w.shape, func(gw []float64, r, o int) {
			for i := range k {
				gw[o*k+i] += g.floats[r*n+o] * x.floats[r*k+i]
			}
		})
		gradient(2, []int64{int64(n)}, func(gb []float64, r, o int) { gb[o] += g.floats[r*n+o] })
		return out
	}
	return []value{y}
}

// stretches says whether a tensor of shape `from` must be repeated to get shape `to`, along dimensions of size 1.
func stretches(from, to []int64) bool {
	if len(from) != len(to) || slices.Equal(from, to) {
		return false
	}
	for i, n := range from {
		if n != to[i] && n != 1 {
			return false
		}
	}
	return true
}

// stretched returns b repeated to the shape `to`. The result lives as long as the call and its graph.
func (d *Device) stretched(c *call, b *Tensor, to []int64) *Tensor {
	v := d.fresh(engine.Float64, to)
	c.own = append(c.own, v)
	from, shape := b.value.floats, b.shape
	d.issue(func() {
		for i := range v.floats {
			at, rest, step := 0, i, 1
			for k := len(to) - 1; k >= 0; k-- {
				if shape[k] != 1 {
					at += rest % int(to[k]) * step
				}
				rest /= int(to[k])
				step *= int(shape[k])
			}
			v.floats[i] = from[at]
		}
	})
	return &Tensor{value: v}
}

// unary applies f element by element. The function slope computes the gradient of x from (x, y, gradient of y).
func unary(f func(x float64) float64, slope func(x, y, g float64) float64) operator {
	return func(c *call) []value {
		x := c.floats(0, false)
		if c.err != nil {
			return nil
		}
		y, from := c.d.fresh(engine.Float64, x.shape), x.value.floats
		c.loop(func() {
			for i, v := range from {
				y.floats[i] = f(v)
			}
		})
		c.inputs, c.saved = []*Tensor{x}, []value{x.value, y}
		d := c.d
		c.back = func(n *node, g value) []*value {
			gx, xs, ys := d.fresh(engine.Float64, g.shape), n.saved[0].floats, n.saved[1].floats
			d.issue(func() {
				for i := range gx.floats {
					gx.floats[i] = slope(xs[i], ys[i], g.floats[i])
				}
			})
			return []*value{&gx}
		}
		return []value{y}
	}
}

// binary2 applies f to two tensors of the same shape. The functions slopeA and slopeB compute the gradients of a and b
// from (a, b, gradient of the result).
func binary2(c *call, f func(a, b float64) float64, slopeA, slopeB func(a, b, g float64) float64) []value {
	a, b := c.floats(0, false), c.floats(1, false)
	if c.err == nil && !slices.Equal(a.shape, b.shape) {
		c.fail("shapes %v and %v; they must be the same", a.shape, b.shape)
	}
	if c.err != nil {
		return nil
	}
	y, as, bs := c.d.fresh(engine.Float64, a.shape), a.value.floats, b.value.floats
	c.loop(func() {
		for i := range y.floats {
			y.floats[i] = f(as[i], bs[i])
		}
	})
	c.inputs, c.saved = []*Tensor{a, b}, []value{a.value, b.value}
	d := c.d
	c.back = func(n *node, g value) []*value {
		out := make([]*value, 2)
		for k, slope := range []func(a, b, g float64) float64{slopeA, slopeB} {
			if n.inputs[k] == nil {
				continue
			}
			gk, as, bs := d.fresh(engine.Float64, g.shape), n.saved[0].floats, n.saved[1].floats
			d.issue(func() {
				for i := range gk.floats {
					gk.floats[i] = slope(as[i], bs[i], g.floats[i])
				}
			})
			out[k] = &gk
		}
		return out
	}
	return []value{y}
}

func reshape(c *call) []value {
	x, to := c.tensor(0, false), slices.Clone(c.shape(1))
	if c.err != nil {
		return nil
	}
	known, free := int64(1), -1
	for i, n := range to {
		if n < 0 && free < 0 {
			free = i
		} else {
			known *= n
		}
	}
	if free >= 0 && known > 0 {
		to[free] = count(x.shape) / known
	}
	if !fits(to) || count(to) != count(x.shape) {
		c.fail("shape %v cannot be read as %v", x.shape, to)
		return nil
	}
	from := x.shape
	c.inputs = []*Tensor{x}
	c.back = func(_ *node, g value) []*value {
		gx := g.reshaped(from)
		return []*value{&gx}
	}
	return []value{x.reshaped(to)}
}

// cat joins tensors along one dimension. It also joins whole numbers, without a gradient.
func cat(c *call) []value {
	var list []engine.Tensor
	if len(c.args) > 0 {
		list, _ = c.args[0].([]engine.Tensor)
	}
	dim := int(c.number(1, 0))
	if len(list) == 0 || dim < 0 {
		c.fail("it joins a list of tensors along a dimension")
		return nil
	}
	var xs []*Tensor
	for _, t := range list {
		x, err := tensorOf(t)
		if err != nil {
			c.fail("%w", err)
			return nil
		}
		xs = append(xs, x)
		if first := xs[0].shape; x.dtype != xs[0].dtype || len(x.shape) <= dim || len(x.shape) != len(first) ||
			!slices.Equal(x.shape[:dim], first[:dim]) || !slices.Equal(x.shape[dim+1:], first[dim+1:]) {
			c.fail("shapes %v and %v do not join along dimension %d", first, x.shape, dim)
			return nil
		}
	}
	// Each input contributes one block of elements for each index of the dimensions before dim.
	runs, width := int(count(xs[0].shape[:dim])), 0
	widths, shapes := make([]int, len(xs)), make([][]int64, len(xs))
	shape := slices.Clone(xs[0].shape)
	shape[dim] = 0
	for i, x := range xs {
		widths[i], shapes[i] = int(count(x.shape[dim:])), x.shape
		width += widths[i]
		shape[dim] += x.shape[dim]
	}
	y := c.d.fresh(xs[0].dtype, shape)
	terms := make([]value, len(xs))
	for i, x := range xs {
		terms[i] = x.value
	}
	c.loop(func() {
		at := 0
		for i, x := range terms {
			for r := range runs {
				to, from := r*width+at, r*widths[i]
				if x.floats != nil {
					copy(y.floats[to:to+widths[i]], x.floats[from:])
				} else {
					copy(y.ints[to:to+widths[i]], x.ints[from:])
				}
			}
			at += widths[i]
		}
	})
	if y.ints != nil {
		return []value{y}
	}
	c.inputs = xs
	d := c.d
	c.back = func(n *node, g value) []*value {
		out := make([]*value, len(widths))
		at := 0
		for i, w := range widths {
			if n.inputs[i] != nil {
				gi, begin := d.fresh(engine.Float64, shapes[i]), at
				d.issue(func() {
					for r := range runs {
						copy(gi.floats[r*w:(r+1)*w], g.floats[r*width+begin:])
					}
				})
				out[i] = &gi
			}
			at += w
		}
		return out
	}
	return []value{y}
}
