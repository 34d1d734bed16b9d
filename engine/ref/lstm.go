package ref

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

func init() { operators["millrace::lstm"] = lstm }

// lstm computes one recurrent layer over whole sequences, like native/shim/lstm.cpp. It reads x [rows, positions,
// width], weights of the input [4 units, width] and of the state [4 units, units], and two biases for each gate [8
// units]. Gates are in the order input, forget, cell, output. If the fifth argument is true, sequences are read
// backwards. State and cell are zero before each sequence.
func lstm(c *call) []value {
	x, w, u, b := c.floats(0, false), c.floats(1, false), c.floats(2, false), c.floats(3, false)
	reverse := false
	if len(c.args) > 4 {
		reverse, _ = c.args[4].(bool)
	}
	if c.err != nil {
		return nil
	}
	if len(x.shape) != 3 || x.shape[1] < 1 || len(u.shape) != 2 ||
		!slices.Equal(u.shape, []int64{4 * u.shape[1], u.shape[1]}) ||
		!slices.Equal(w.shape, []int64{u.shape[0], x.shape[2]}) || !slices.Equal(b.shape, []int64{2 * u.shape[0]}) {
		c.fail("x of shape %v with weights %v and %v and biases %v; "+
			"it takes [rows positions width], [4 units width], [4 units units], [8 units]", x.shape, w.shape, u.shape, b.shape)
		return nil
	}
	l := recurrent{rows: int(x.shape[0]), length: int(x.shape[1]), width: int(x.shape[2]), units: int(u.shape[1]),
		reverse: reverse}
	shape := []int64{x.shape[0], x.shape[1], u.shape[1]}
	gates := c.d.fresh(engine.Float64, []int64{x.shape[0], x.shape[1], u.shape[0]})
	cells, h := c.d.fresh(engine.Float64, shape), c.d.fresh(engine.Float64, shape)
	c.own = append(c.own, gates, cells)
	xs, ws, us, bs := x.value.floats, w.value.floats, u.value.floats, b.value.floats
	c.loop(func() { l.forward(xs, ws, us, bs, gates.floats, cells.floats, h.floats) })
	c.inputs, c.saved, c.weights = []*Tensor{x, w, u, b}, []value{x.value, w.value, u.value, gates, cells, h},
		[]int{1, 2, 3}
	d := c.d
	var dz []float64 // the gates' gradients: the first half of a backward computes them, and the second half uses them
	c.back = func(n *node, g value) []*value {
		if dz == nil {
			us, gates, cells, found := n.saved[2].floats, n.saved[3].floats, n.saved[4].floats,
				make([]float64, count(n.saved[3].shape))
			d.issue(func() { l.through(g.floats, us, gates, cells, found) })
			dz = found
		}
		return d.lstmBack(n, dz, l)
	}
	return []value{h}
}

// recurrent holds the sizes and the direction of an lstm.
type recurrent struct {
	rows, length, width, units int
	reverse                    bool
}

// at returns the index of the position that row r reads at a step. `before` is the index of the position that the row
// read one step before; at the first step it is -1.
func (l recurrent) at(r, step int) (at, before int) {
	if l.reverse {
		at = r*l.length + l.length - 1 - step
		before = at + 1
	} else {
		at = r*l.length + step
		before = at - 1
	}
	if step == 0 {
		before = -1
	}
	return at, before
}

func (l recurrent) forward(x, w, u, b, gates, cells, h []float64) {
	n := l.units
	for r := range l.rows {
		for step := range l.length {
			at, before := l.at(r, step)
			z := gates[at*4*n : (at+1)*4*n]
			for o := range z {
				s := b[o] + b[4*n+o]
				for i := range l.width {
					s += w[o*l.width+i] * x[at*l.width+i]
				}
				if before >= 0 {
					for i := range n {
						s += u[o*n+i] * h[before*n+i]
					}
				}
				if o/n == 2 {
					z[o] = math.Tanh(s)
				} else {
					z[o] = 1 / (1 + math.Exp(-s))
				}
			}
			for k := range n {
				cell := z[k] * z[2*n+k]
				if before >= 0 {
					cell += z[n+k] * cells[before*n+k]
				}
				cells[at*n+k], h[at*n+k] = cell, z[3*n+k]*math.Tanh(cell)
			}
		}
	}
}

// through computes dz, the gradients of the gates before their activation functions, from the last position to the
// first.
func (l recurrent) through(g, u, gates, cells, dz []float64) {
	n := l.units
	for r := range l.rows {
		dc, after := make([]float64, n), -1
		for step := l.length - 1; step >= 0; step-- {
			at, before := l.at(r, step)
			z, d := gates[at*4*n:(at+1)*4*n], dz[at*4*n:(at+1)*4*n]
			for k := range n {
				dh := g[at*n+k]
				if after >= 0 {
					for o := range 4 * n {
						dh += dz[after*4*n+o] * u[o*n+k]
					}
				}
				in, forget, cell, out := z[k], z[n+k], z[2*n+k], z[3*n+k]
				y := math.Tanh(cells[at*n+k])
				dc[k] += dh * out * (1 - y*y)
				d[k] = dc[k] * cell * in * (1 - in)
				if before >= 0 {
					d[n+k] = dc[k] * cells[before*n+k] * forget * (1 - forget)
				}
				d[2*n+k] = dc[k] * in * (1 - cell*cell)
				d[3*n+k] = dh * y * out * (1 - out)
				dc[k] *= forget
			}
			after = at
		}
	}
}

// lstmBack returns the gradients of those inputs that n still has. Each half of a backward keeps only its own inputs. A
// weight's gradient is a sum over rows and, within a row, over positions. Rows and positions are added in ascending
// order.
func (d *Device) lstmBack(n *node, dz []float64, l recurrent) []*value {
	x, w, u, h := n.saved[0], n.saved[1], n.saved[2], n.saved[5]
	out := make([]*value, 4)
	for i, shape := range [][]int64{x.shape, w.shape, u.shape, {int64(8 * l.units)}} {
		if n.inputs[i] != nil {
			v := d.fresh(engine.Float64, shape)
			out[i] = &v
		}
	}
	d.issue(func() {
		for r := range l.rows {
			for p := range l.length {
				step := p
				if l.reverse {
					step = l.length - 1 - p
				}
				at, before := l.at(r, step)
				for o, z := range dz[at*4*l.units : (at+1)*4*l.units] {
					for i := range l.width {
						if out[0] != nil {
							out[0].floats[at*l.width+i] += z * w.floats[o*l.width+i]
						}
						if out[1] != nil {
							out[1].floats[o*l.width+i] += z * x.floats[at*l.width+i]
						}
					}
					if out[2] != nil && before >= 0 {
						for i := range l.units {
							out[2].floats[o*l.units+i] += z * h.floats[before*l.units+i]
						}
					}
					if out[3] != nil {
						out[3].floats[o] += z
						out[3].floats[4*l.units+o] += z
					}
				}
			}
		}
	})
	return out
}
