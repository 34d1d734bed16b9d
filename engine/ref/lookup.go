package ref

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

func init() {
	operators["millrace::embedding"] = embedding
	operators["millrace::layer_norm"] = layerNorm
}

// embedding returns, for each whole number in `ids`, the table's row with this number.
func embedding(c *call) []value {
	table, ids := c.floats(0, false), c.tensor(1, false)
	if c.err == nil && (len(table.shape) != 2 || ids.ints == nil) {
		c.fail("a table of shape %v and places of type %v; it takes [rows width] and whole numbers", table.shape, ids.dtype)
	}
	if c.err != nil {
		return nil
	}
	rows, width := table.shape[0], int(table.shape[1])
	y := c.d.fresh(engine.Float64, append(slices.Clone(ids.shape), int64(width)))
	places, from := ids.value.ints, table.value.floats
	c.do(func() error {
		for i, k := range places {
			if k < 0 || k >= rows {
				return fmt.Errorf("place %d; the table has rows 0 to %d", k, rows-1)
			}
			copy(y.floats[i*width:(i+1)*width], from[int(k)*width:])
		}
		return nil
	})
	c.inputs, c.saved, c.weights = []*Tensor{table, nil}, []value{ids.value}, []int{0}
	d, shape := c.d, table.shape
	c.back = func(n *node, g value) []*value {
		gt, places := d.fresh(engine.Float64, shape), n.saved[0].ints
		d.issue(func() {
			for i, k := range places {
				for j := range width {
					gt.floats[int(k)*width+j] += g.floats[i*width+j]
				}
			}
		})
		return []*value{&gt, nil}
	}
	return []value{y}
}

// layerNorm computes gain * (x - mean) / sqrt(variance + eps) + shift over the last dimension. The variance is the sum
// of the squared deviations from the mean, divided by the number of elements, not by one less (Ba, Kiros and Hinton,
// Layer Normalization, 2016, equation 4).
func layerNorm(c *call) []value {
	x, gain, shift := c.floats(0, false), c.floats(1, false), c.floats(2, false)
	eps := c.number(3, 1e-5)
	if c.err != nil {
		return nil
	}
	if len(x.shape) == 0 || !slices.Equal(gain.shape, x.shape[len(x.shape)-1:]) || !slices.Equal(shift.shape, gain.shape) {
		c.fail("x of shape %v with gain %v and shift %v; both are as long as the last dimension", x.shape, gain.shape,
			shift.shape)
		return nil
	}
	width := int(gain.shape[0])
	rows := int(count(x.shape)) / max(width, 1)
	y, z := c.d.fresh(engine.Float64, x.shape), c.d.fresh(engine.Float64, x.shape) // z: x normalised, for the backward
	inverse := c.d.fresh(engine.Float64, []int64{int64(rows)})
	c.own = append(c.own, z, inverse)
	xs, gains, shifts := x.value.floats, gain.value.floats, shift.value.floats
	c.loop(func() {
		for r := range rows {
			row := xs[r*width : (r+1)*width]
			mean, variance := 0.0, 0.0
			for _, v := range row {
				mean += v
			}
			mean /= float64(width)
			for _, v := range row {
				variance += (v - mean) * (v - mean)
			}
			inverse.floats[r] = 1 / math.Sqrt(variance/float64(width)+eps)
			for i, v := range row {
				z.floats[r*width+i] = (v - mean) * inverse.floats[r]
				y.floats[r*width+i] = gains[i]*z.floats[r*width+i] + shifts[i]
			}
		}
	})
	c.inputs, c.saved, c.weights = []*Tensor{x, gain, shift}, []value{z, inverse, gain.value}, []int{1, 2}
	d := c.d
	c.back = func(n *node, g value) []*value { return d.layerNormBack(n, g, rows, width) }
	return []value{y}
}

// layerNormBack computes the gradients of x, gain and shift. Here g is the output's gradient, z the normalised x,
// inverse is 1 / sqrt(variance + eps), and h = gain * g. With means over a row, the gradient of x is inverse * (h -
// mean(h) - z * mean(h * z)).
func (d *Device) layerNormBack(n *node, g value, rows, width int) []*value {
	z, inverse, gain := n.saved[0], n.saved[1], n.saved[2]
	gx := d.fresh(engine.Float64, z.shape)
	gg, gs := d.fresh(engine.Float64, gain.shape), d.fresh(engine.Float64, gain.shape)
	d.issue(func() {
		for r := range rows {
			mean, along := 0.0, 0.0
			for i := range width {
				k := r*width + i
				gg.floats[i] += g.floats[k] * z.floats[k]
				gs.floats[i] += g.floats[k]
				h := gain.floats[i] * g.floats[k]
				mean += h / float64(width)
				along += h * z.floats[k] / float64(width)
			}
			for i := range width {
				k := r*width + i
				gx.floats[k] = inverse.floats[r] * (gain.floats[i]*g.floats[k] - mean - z.floats[k]*along)
			}
		}
	})
	return []*value{&gx, &gg, &gs}
}
