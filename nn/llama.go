package nn

import (
	"fmt"
	"math"
	"sync"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
)

func init() {
	Register("rms_norm", func(l model.Layer) (Layer, error) {
		epsilon := l.Number("epsilon")
		return unary(func(o *ops, ctx *Context, x tensor) tensor { return o.rmsNorm(x, ctx.Params[0], epsilon) }), nil
	})
	Register("rotary_attention", func(l model.Layer) (Layer, error) {
		positions, width := l.Outputs[0].Shape[0], l.Outputs[0].Shape[1]
		waves := sync.OnceValue(func() rotation { return rotations(positions, width/l.Int("heads"), l.Number("theta")) })
		return rotary{heads: int64(l.Int("heads")), groups: int64(l.Int("kv_heads")), epsilon: l.Number("epsilon"),
			waves: waves}, nil
	})
	Register("swiglu", func(l model.Layer) (Layer, error) {
		epsilon := l.Number("epsilon")
		return unary(func(o *ops, ctx *Context, x tensor) tensor {
			w := ctx.Params
			n := o.rmsNorm(x, w[0], epsilon)
			hidden := o.mul(o.call("aten::silu", o.linear(n, w[1], nil)), o.linear(n, w[2], nil))
			return o.residual(ctx, x, hidden, w[3], nil, 0)
		}), nil
	})
}

// rmsNorm computes x gain / sqrt(mean(x^2) + epsilon) over the last dimension (Zhang and Sennrich, Root Mean Square
// Layer Normalization, 2019).
func (o *ops) rmsNorm(x, gain tensor, epsilon float64) tensor {
	mean := o.call("aten::mean.dim", o.mul(x, x), []int64{-1}, true)
	return o.mul(o.mul(x, o.call("aten::rsqrt", o.call("aten::add.Scalar", mean, epsilon))), gain)
}

// rotary is causal self-attention with rotary position embedding, its norm and its residual. Its parameters are the
// norm's gain and the weights of q, k, v and the output.
type rotary struct {
	heads, groups int64
	epsilon       float64
	waves         func() rotation
}

// Forward reads x of shape [rows, positions, width].
func (a rotary) Forward(ctx *Context, in Bundle) (Bundle, error) {
	if err := take(in, 1); err != nil {
		return nil, err
	}
	o, x, w := ops{dev: ctx.Device}, in[0].Tensor, ctx.Params
	n := o.rmsNorm(x, w[0], a.epsilon)
	cos, sin := o.angles(a.waves(), x)
	q := o.turned(o.linear(n, w[1], nil), cos, sin, a.heads)
	k := o.shared(o.turned(o.linear(n, w[2], nil), cos, sin, a.groups), a.groups, a.heads)
	v := o.shared(o.linear(n, w[3], nil), a.groups, a.heads)
	y := o.call("millrace::causal_attention", o.cat([]tensor{q, k, v}, 2), a.heads, nil)
	return o.out(o.residual(ctx, x, y, w[4], nil, 0))
}

// rotation holds the cosines [positions, 1, 1, half] and sines [positions, 1, 2, half] by which heads are rotated.
type rotation struct {
	positions, half int64
	cos, sin        []float64
}

// rotations computes the rotation for heads with `head` elements each. Element i and element i + half are the
// coordinates of a point, which is rotated by the angle position / theta^(i / half). Angles are rounded in the same way
// as in the training of published weights.
func rotations(positions, head int, theta float64) rotation {
	half := head / 2
	r := rotation{positions: int64(positions), half: int64(half), cos: make([]float64, positions*half),
		sin: make([]float64, 2*positions*half)}
	for i := range half {
		turn := float32(1 / math.Pow(theta, float64(i)/float64(half)))
		for p := range positions {
			sin, cos := math.Sincos(float64(float32(p) * turn))
			r.cos[p*half+i] = cos
			r.sin[2*p*half+i], r.sin[(2*p+1)*half+i] = -sin, sin
		}
	}
	return r
}

// angles returns the rotation as tensors of x's type.
func (o *ops) angles(r rotation, x tensor) (cos, sin tensor) {
	if o.err == nil && x.Shape()[1] != r.positions {
		o.err = fmt.Errorf("nn: a layer of %d positions got %d", r.positions, x.Shape()[1])
	}
	if o.err != nil {
		return nil, nil
	}
	cos = o.constant(x.DType(), []int64{r.positions, 1, 1, r.half}, r.cos)
	return cos, o.constant(x.DType(), []int64{r.positions, 1, 2, r.half}, r.sin)
}

func (o *ops) constant(of engine.DType, shape []int64, values []float64) tensor {
	data := engine.Bytes(values)
	if of != engine.Float64 {
		narrow := make([]float32, len(values))
		for i, v := range values {
			narrow[i] = float32(v)
		}
		data = engine.Bytes(narrow)
	}
	x, err := o.dev.FromBytes(of, shape, data)
	if o.err == nil {
		o.err = err
	}
	return x
}

// turned returns x [rows, positions, heads x d] with each head rotated by its position's angles.
func (o *ops) turned(x, cos, sin tensor, heads int64) tensor {
	if o.err != nil {
		return nil
	}
	shape := x.Shape()
	x = o.view(x, []int64{shape[0], shape[1], heads, 2, shape[2] / heads / 2})
	y := o.add(o.mul(x, cos), o.mul(o.call("aten::flip", x, []int64{3}), sin))
	return o.view(y, shape)
}

// shared returns x [rows, positions, groups x d] with each group's part repeated for each of its heads.
func (o *ops) shared(x tensor, groups, heads int64) tensor {
	if groups == heads || o.err != nil {
		return x
	}
	shape := x.Shape()
	d := shape[2] / groups
	x = o.call("aten::expand", o.view(x, []int64{shape[0], shape[1], groups, 1, d}),
		[]int64{shape[0], shape[1], groups, heads / groups, d}, false)
	return o.reshape(x, []int64{shape[0], shape[1], heads * d})
}
