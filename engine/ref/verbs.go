package ref

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

// These operators are called by functions of package engine and by optimizers.
func init() {
	operators["aten::clone"] = func(c *call) []value {
		x := c.tensor(0, false)
		if c.err != nil {
			return nil
		}
		y, from := c.d.fresh(x.dtype, x.shape), x.value
		c.loop(func() {
			copy(y.floats, from.floats)
			copy(y.ints, from.ints)
			copy(y.packed, from.packed)
		})
		return []value{y}
	}
	operators["aten::narrow"] = narrow
	operators["aten::stack"] = stack
	operators["millrace::square_sum"] = squareSum
	operators["millrace::lars_"] = trust
	operators["millrace::mask"] = mask
	operators["millrace::pack"] = pack
	operators["millrace::unpack"] = unpack
}

// narrow returns some rows of a tensor.
func narrow(c *call) []value {
	x, dim, first, n := c.tensor(0, false), c.number(1, 0), int64(c.number(2, 0)), int64(c.number(3, 0))
	if c.err != nil {
		return nil
	}
	if dim != 0 || len(x.shape) == 0 || first < 0 || n < 0 || first+n > x.shape[0] {
		c.fail("%d elements from %d on along dimension %v of shape %v; it takes rows that are there", n, first, dim, x.shape)
		return nil
	}
	return []value{x.rows(first, n)}
}

// stack joins tensors of floats along a new first dimension.
func stack(c *call) []value {
	var list []engine.Tensor
	if len(c.args) > 0 {
		list, _ = c.args[0].([]engine.Tensor)
	}
	if len(list) == 0 || c.number(1, 0) != 0 {
		c.fail("it puts a list of tensors side by side along dimension 0")
		return nil
	}
	var rows [][]float64
	var shape []int64
	for i, t := range list {
		x, err := tensorOf(t)
		if err == nil && (!x.dtype.IsFloat() || i > 0 && !slices.Equal(x.shape, shape)) {
			err = fmt.Errorf("tensor %d is %v%v; all must be floats of one shape", i, x.dtype, x.shape)
		}
		if err != nil {
			c.fail("%w", err)
			return nil
		}
		rows, shape = append(rows, x.value.floats), x.shape
	}
	y := c.d.fresh(engine.Float64, append([]int64{int64(len(rows))}, shape...))
	c.loop(func() {
		at := y.floats
		for _, row := range rows {
			at = at[copy(at, row):]
		}
	})
	return []value{y}
}

func squareSum(c *call) []value {
	x := c.floats(0, false)
	if c.err != nil {
		return nil
	}
	y, xs := c.d.fresh(engine.Float64, nil), x.value.floats
	c.loop(func() { y.floats[0] = squares(xs) })
	return []value{y}
}

// squares returns the sum of squares, in the order that engine.SquareSum promises.
func squares(xs []float64) float64 {
	var part [8]float64
	for i, v := range xs {
		part[i%8] += v * v
	}
	return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
}

// trust turns a gradient into LARS's direction: coefficient * w / (g + decay * w) * (grad + decay * weight). Here w and
// g are the norms of the weight and the gradient. If either norm is 0, the factor before (grad + decay * weight) is 1.
func trust(c *call) []value {
	grad, weight := c.floats(0, false), c.floats(1, false)
	coefficient, decay := c.number(2, 1), c.number(3, 0)
	if c.err == nil && !slices.Equal(grad.shape, weight.shape) {
		c.fail("a gradient of shape %v and a weight of shape %v; they must be the same", grad.shape, weight.shape)
	}
	if c.err != nil {
		return nil
	}
	g, w := grad.value.floats, weight.value.floats
	c.loop(func() {
		by, ofW, ofG := 1.0, math.Sqrt(squares(w)), math.Sqrt(squares(g))
		if ofW > 0 && ofG > 0 {
			by = coefficient * ofW / (ofG + decay*ofW)
		}
		for i := range g {
			g[i] = by * (g[i] + decay*w[i])
		}
	})
	c.same = grad
	return nil
}

// mask implements engine.Mask, number by number.
func mask(c *call) []value {
	c.floats(0, false)
	shape, key, first := c.shape(1), c.whole(2), c.whole(3)
	threshold, keep := c.whole(4), c.number(5, 1)
	if c.err == nil && (len(shape) == 0 || !fits(shape) || threshold < 0 || threshold > 0xffff) {
		c.fail("a mask of shape %v with threshold %d; it takes rows and 16 bits", shape, threshold)
	}
	if c.err != nil {
		return nil
	}
	m, perRow := c.d.fresh(engine.Float64, shape), int(count(shape[1:]))
	c.loop(func() {
		for i := range m.floats {
			row, at := uint64(i/perRow), i%perRow
			ofRow := mix(uint64(key) + golden*(uint64(first)+row+1))
			word := mix(ofRow + golden*uint64(at/4+1))
			if int64(word>>(16*(at%4))&0xffff) >= threshold {
				m.floats[i] = keep
			}
		}
	})
	return []value{m}
}

const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64 (Steele et al., OOPSLA 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
