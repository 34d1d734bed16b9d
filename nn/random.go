package nn

import (
	"math"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
)

// stream yields random words from a key and a counter: the same key and place give the
// same word on any worker, in any order.
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

// uniform is in (0, 1).
func (s *stream) uniform() float64 { return (float64(s.word()>>11) + 0.5) / (1 << 53) }

// InitialValues are a parameter's values before training, in row-major order: a
// function of the seed, the layer's position and the parameter's position alone.
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

// mask is a dropout mask for x, whose first dimension is rows: 0 with probability p and
// 1/(1-p) otherwise. site tells masks within a layer apart. Each row has a key of its
// own, counted in the whole micro-batch, so a slice of it gets the same rows.
func (o *ops) mask(ctx *Context, site uint64, x tensor, p float64) tensor {
	if o.err != nil {
		return nil
	}
	return o.maskOf(ctx, site, x.DType(), x.Shape(), p)
}

func (o *ops) maskOf(ctx *Context, site uint64, dtype engine.DType, shape []int64, p float64) tensor {
	rows := int(shape[0])
	perRow := 1
	for _, d := range shape[1:] {
		perRow *= int(d)
	}
	keep := 1 / (1 - p)
	threshold := uint16(math.Round(p * (1 << 16)))
	row := func(r int) stream {
		return newStream(ctx.Seed, 'd', uint64(ctx.Layer), site, uint64(ctx.Step), uint64(ctx.Micro), uint64(ctx.FirstRow+r))
	}
	var m tensor
	if dtype == engine.Float64 {
		values := make([]float64, rows*perRow)
		for r := range rows {
			fillMask(row(r), values[r*perRow:(r+1)*perRow], threshold, keep)
		}
		m, o.err = o.dev.FromBytes(engine.Float64, shape, Bytes(values))
		return m
	}
	values := make([]float32, rows*perRow)
	for r := range rows {
		fillMask(row(r), values[r*perRow:(r+1)*perRow], threshold, float32(keep))
	}
	m, o.err = o.dev.FromBytes(engine.Float32, shape, Bytes(values))
	return m
}

// fillMask spends one random word on four elements.
func fillMask[T float32 | float64](s stream, values []T, threshold uint16, keep T) {
	choice := [2]T{0, keep}
	for i := 0; i < len(values); i += 4 {
		w := s.word()
		for j := i; j < min(i+4, len(values)); j++ {
			kept := 0
			if uint16(w) >= threshold {
				kept = 1
			}
			values[j] = choice[kept]
			w >>= 16
		}
	}
}

// Bytes views the memory of a slice as bytes.
func Bytes[T float32 | float64 | int64](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}

// dropout applies a mask while training.
func (o *ops) dropout(ctx *Context, site uint64, x tensor, p float64) tensor {
	if p == 0 || !ctx.Training || o.err != nil {
		return x
	}
	return o.mul(x, o.mask(ctx, site, x, p))
}

// lockedDropout is dropout of x [rows, positions, width] with one mask a row, the same at
// all positions.
func (o *ops) lockedDropout(ctx *Context, site uint64, x tensor, p float64) tensor {
	if p == 0 || !ctx.Training || o.err != nil {
		return x
	}
	shape := x.Shape()
	return o.mul(x, o.maskOf(ctx, site, x.DType(), []int64{shape[0], 1, shape[2]}, p))
}
