package ref

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

// These operators are for optimizers. All except aten::sqrt change their first argument. Further tensors must have the
// same shape as the first. The last argument is a number, 1 by default. The changed tensor must be outside of any
// graph, unless the call is made under NoGrad.
func init() {
	inPlace := func(name string, others int, f func(s float64, x []float64, others [][]float64)) {
		operators[name] = func(c *call) []value {
			x, s := c.floats(0, false), c.number(1+others, 1)
			var terms [][]float64
			for i := 1; i <= others; i++ {
				t := c.floats(i, false)
				if c.err != nil {
					return nil
				}
				if !slices.Equal(t.shape, x.shape) {
					c.fail("argument %d has shape %v, the first %v; they must be the same", i, t.shape, x.shape)
					return nil
				}
				terms = append(terms, t.value.floats)
			}
			if c.err == nil && x.node != nil && c.d.tracking {
				c.fail("a tensor that takes part in a graph is changed in place; use NoGrad")
			}
			if c.err != nil {
				return nil
			}
			numbers := x.value.floats
			c.loop(func() { f(s, numbers, terms) })
			c.same = x
			return nil
		}
	}
	inPlace("aten::zero_", 0, func(_ float64, x []float64, _ [][]float64) { clear(x) })
	inPlace("aten::mul_.Scalar", 0, func(s float64, x []float64, _ [][]float64) {
		for i := range x {
			x[i] *= s
		}
	})
	inPlace("aten::div_.Scalar", 0, func(s float64, x []float64, _ [][]float64) {
		for i := range x {
			x[i] /= s
		}
	})
	inPlace("aten::add_.Scalar", 0, func(s float64, x []float64, _ [][]float64) {
		for i := range x {
			x[i] += s
		}
	})
	inPlace("aten::sqrt_", 0, func(_ float64, x []float64, _ [][]float64) {
		for i := range x {
			x[i] = math.Sqrt(x[i])
		}
	})
	inPlace("aten::add_.Tensor", 1, func(s float64, x []float64, o [][]float64) {
		for i := range x {
			x[i] += s * o[0][i]
		}
	})
	inPlace("aten::copy_", 1, func(_ float64, x []float64, o [][]float64) { copy(x, o[0]) })
	inPlace("aten::addcmul_", 2, func(s float64, x []float64, o [][]float64) {
		for i := range x {
			x[i] += s * o[0][i] * o[1][i]
		}
	})
	inPlace("aten::addcdiv_", 2, func(s float64, x []float64, o [][]float64) {
		for i := range x {
			x[i] += s * o[0][i] / o[1][i]
		}
	})
	operators["aten::sqrt"] = func(c *call) []value {
		x := c.floats(0, false)
		if c.err != nil {
			return nil
		}
		y := c.d.fresh(engine.Float64, x.shape)
		from := x.value.floats
		c.loop(func() {
			for i, v := range from {
				y.floats[i] = math.Sqrt(v)
			}
		})
		return []value{y}
	}
}
