package nn

import (
	"math"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
)

// stream returns random words from a key and a counter. The same key and counter give the same word on any worker, in
// any order.
type stream struct{ key, n uint64 }

// mix is the finalizer of SplitMix64 (Steele et al., Fast Splittable Pseudorandom
// Number Generators, OOPSLA 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const golden = 0x9e3779b97f4a7c15

func newStream(parts ...uint64) stream {
	key := uint64(golden)
	for _, p := range parts {
		key = mix(key + golden*(p+1))
	}
	return stream{key: key}
}

func (s *stream) word() uint64 {
	s.n++
	return mix(s.key + golden*s.n)
}

// uniform returns a uniform number in (0, 1).
func (s *stream) uniform() float64 { return (float64(s.word()>>11) + 0.5) / (1 << 53) }

// InitialValues returns a parameter's values before training, in row-major order. Besides p, they depend only on the
// seed, the layer's position and the parameter's position. They are made on the host, because libraries differ in the
// last bits of the logarithms and sines that normal numbers need.
func InitialValues(p model.Param, layer, index int, seed uint64) []float64 {
	values := make([]float64, model.Tensor{Shape: p.Shape}.Elements())
	s := newStream(seed, 'w', uint64(layer), uint64(index))
	switch p.Init.Kind {
	case "ones":
		for i := range values {
			values[i] = 1
		}
	case "uniform":
		for i := range values {
			values[i] = p.Init.High * (2*s.uniform() - 1)
		}
	case "normal":
		for i := 0; i < len(values); i += 2 {
			r := p.Init.Std * math.Sqrt(-2*math.Log(s.uniform()))
			sin, cos := math.Sincos(2 * math.Pi * s.uniform())
			values[i] = r * cos
			if i+1 < len(values) {
				values[i+1] = r * sin
			}
		}
	}
	return values
}

// mask returns a dropout mask of the given shape and of x's type. The first dimension is the rows. An element is 0 with
// probability p, rounded to a multiple of 2^-16, and 1/(1-p) otherwise. The argument `site` distinguishes masks within
// a layer. Rows are numbered in the whole micro-batch, so a replica's slice gets its part of the whole mask.
func (o *ops) mask(ctx *Context, site uint64, x tensor, shape []int64, p float64) tensor {
	if o.err != nil {
		return nil
	}
	key := newStream(ctx.Seed, 'd', uint64(ctx.Layer), site, uint64(ctx.Step), uint64(ctx.Micro)).key
	threshold := min(math.Round(p*(1<<16)), math.MaxUint16) // 1<<16 would become 0 as a uint16 and drop nothing
	var m tensor
	m, o.err = engine.Mask(o.dev, x, shape, key, int64(ctx.FirstRow), uint16(threshold), 1/(1-p))
	return m
}

// dropout drops elements of x with probability p in training. Otherwise it returns x.
func (o *ops) dropout(ctx *Context, site uint64, x tensor, p float64) tensor {
	if p == 0 || !ctx.Training || o.err != nil {
		return x
	}
	return o.mul(x, o.mask(ctx, site, x, x.Shape(), p))
}

// lockedDropout is dropout of x [rows, positions, width] with one mask for each row, the same at all positions.
func (o *ops) lockedDropout(ctx *Context, site uint64, x tensor, p float64) tensor {
	if p == 0 || !ctx.Training || o.err != nil {
		return x
	}
	shape := x.Shape()
	return o.mul(x, o.mask(ctx, site, x, []int64{shape[0], 1, shape[2]}, p))
}
