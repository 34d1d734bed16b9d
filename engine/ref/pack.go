package ref

import (
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/packing"
)

// format returns argument i as a packed format.
func (c *call) format(i int) packing.Format {
	name := ""
	if i < len(c.args) {
		name, _ = c.args[i].(string)
	}
	f, err := packing.Named(name)
	if err == nil && f.Packs() {
		return f
	}
	c.fail("argument %d is %q; it takes a packed format", i, name)
	return f
}

// rowsOf returns the number of rows of a shape, and the number of elements of each row.
func rowsOf(shape []int64) (rows, elements int64) {
	if len(shape) == 0 {
		return 1, 1
	}
	return shape[0], count(shape[1:])
}

// scaleBytes returns the bytes of a row's scale, or 0 if the format has no scale.
func scaleBytes(f packing.Format) int64 {
	if f.Scaled() {
		return packing.ScaleBytes
	}
	return 0
}

// pack implements engine.Pack.
func pack(c *call) []value {
	x, f, seen := c.floats(0, false), c.format(1), c.floats(2, false)
	if c.err == nil && len(seen.value.floats) != packing.Numbers {
		c.fail("errors are noted in %d numbers, not in shape %v", packing.Numbers, seen.shape)
	}
	if c.err != nil {
		return nil
	}
	rows, elements := rowsOf(x.shape)
	each, scale := f.ElementBytes(), scaleBytes(f)
	y := c.d.fresh(engine.Uint8, append(slices.Clone(x.shape), each))
	z := c.d.fresh(engine.Uint8, []int64{rows, scale})
	from, noted := x.value.floats, seen.value.floats
	c.loop(func() {
		s := packing.Seen{Absolute: noted[0], Relative: noted[1], Beyond: noted[2]}
		for r := range rows {
			first, last := r*elements, (r+1)*elements
			f.Pack(y.packed[first*each:last*each], z.packed[r*scale:(r+1)*scale], from[first:last], &s)
		}
		noted[0], noted[1], noted[2] = s.Absolute, s.Relative, s.Beyond
	})
	return []value{y, z}
}

// unpack implements engine.Unpack.
func unpack(c *call) []value {
	x, z, f := c.tensor(0, false), c.tensor(1, false), c.format(2)
	if c.err != nil {
		return nil
	}
	each, scale, last := f.ElementBytes(), scaleBytes(f), len(x.shape)-1
	if last < 0 || x.shape[last] != each || x.packed == nil || z.packed == nil {
		c.fail("bytes of shape %v for %s; it takes %d for each element", x.shape, f, each)
		return nil
	}
	shape := slices.Clone(x.shape[:last])
	rows, elements := rowsOf(shape)
	if !slices.Equal(z.shape, []int64{rows, scale}) {
		c.fail("scales of shape %v for %d rows of %s; each has %d bytes", z.shape, rows, f, scale)
		return nil
	}
	y, from, scales := c.d.fresh(engine.Float64, shape), x.value.packed, z.value.packed
	c.loop(func() {
		for r := range rows {
			first, last := r*elements, (r+1)*elements
			f.Unpack(y.floats[first:last], from[first*each:last*each], scales[r*scale:(r+1)*scale])
		}
	})
	return []value{y}
}
