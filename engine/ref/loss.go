package ref

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

// crossEntropy computes the mean over rows of -log softmax(x)[target].
func crossEntropy(c *call) []value {
	x, t := c.floats(0, false), c.tensor(1, false)
	if c.err == nil && (len(x.shape) != 2 || len(t.shape) != 1 || x.shape[0] != t.shape[0] || t.ints == nil) {
		c.fail("logits of shape %v and targets of shape %v; they must be [n classes] and [n]", x.shape, t.shape)
	}
	if c.err != nil {
		return nil
	}
	rows, classes := int(x.shape[0]), int(x.shape[1])
	p := c.d.fresh(engine.Float64, x.shape) // softmax, kept for the backward
	c.own = append(c.own, p)
	loss := c.d.fresh(engine.Float64, []int64{})
	xs, ts := x.value.floats, t.value.ints
	c.do(func() error {
		for r := range rows {
			row, soft := xs[r*classes:(r+1)*classes], p.floats[r*classes:(r+1)*classes]
			if k := ts[r]; k < 0 || int(k) >= classes {
				return fmt.Errorf("target %d of row %d; classes are 0 to %d", k, r, classes-1)
			}
			top, s := slices.Max(row), 0.0
			for i, v := range row {
				soft[i] = math.Exp(v - top)
				s += soft[i]
			}
			for i := range soft {
				soft[i] /= s
			}
			loss.floats[0] += math.Log(s) + top - row[ts[r]]
		}
		loss.floats[0] /= float64(rows)
		return nil
	})
	c.inputs, c.saved = []*Tensor{x, nil}, []value{p, t.value}
	d := c.d
	c.back = func(n *node, g value) []*value {
		p, t := n.saved[0], n.saved[1]
		gx := d.fresh(engine.Float64, p.shape)
		d.issue(func() {
			scale := g.floats[0] / float64(rows)
			for r := range rows {
				for i := range classes {
					gx.floats[r*classes+i] = scale * p.floats[r*classes+i]
				}
				gx.floats[r*classes+int(t.ints[r])] -= scale
			}
		})
		return []*value{&gx, nil}
	}
	return []value{loss}
}

// argmax returns the index of the largest value along the last dimension. Among equal values it takes the first.
func argmax(c *call) []value {
	x := c.floats(0, false)
	if c.err != nil || len(x.shape) == 0 {
		c.fail("it takes a tensor with a shape")
		return nil
	}
	last := int(x.shape[len(x.shape)-1])
	y, xs := c.d.fresh(engine.Int64, x.shape[:len(x.shape)-1]), x.value.floats
	c.loop(func() {
		for r := range y.ints {
			for i := range last {
				if xs[r*last+i] > xs[r*last+int(y.ints[r])] {
					y.ints[r] = int64(i)
				}
			}
		}
	})
	return []value{y}
}

func equal(c *call) []value {
	a, b := c.tensor(0, false), c.tensor(1, false)
	if c.err == nil && (!slices.Equal(a.shape, b.shape) || a.ints == nil || b.ints == nil) {
		c.fail("it compares whole numbers of one shape, not %v and %v", a.shape, b.shape)
	}
	if c.err != nil {
		return nil
	}
	y, as, bs := c.d.fresh(engine.Bool, a.shape), a.value.ints, b.value.ints
	c.loop(func() {
		for i := range y.ints {
			if as[i] == bs[i] {
				y.ints[i] = 1
			}
		}
	})
	return []value{y}
}

func sum(c *call) []value {
	x := c.tensor(0, false)
	if c.err != nil {
		return nil
	}
	if x.ints != nil {
		y, xs := c.d.fresh(engine.Int64, nil), x.value.ints
		c.loop(func() {
			for _, v := range xs {
				y.ints[0] += v
			}
		})
		return []value{y}
	}
	y, xs := c.d.fresh(engine.Float64, nil), x.value.floats
	c.loop(func() {
		for _, v := range xs {
			y.floats[0] += v
		}
	})
	c.inputs = []*Tensor{x}
	d, shape := c.d, x.shape
	c.back = func(_ *node, g value) []*value {
		gx := d.fresh(engine.Float64, shape)
		d.issue(func() {
			for i := range gx.floats {
				gx.floats[i] = g.floats[0]
			}
		})
		return []*value{&gx}
	}
	return []value{y}
}
