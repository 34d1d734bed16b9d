package nn

import (
	"math"

	"github.com/millrace-ml/millrace/model"
)

func init() {
	Register("layer_norm", func(model.Layer) (Layer, error) {
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1); err != nil {
				return nil, err
			}
			o := ops{dev: ctx.Device}
			return o.out(o.layerNorm(in[0].Tensor, ctx.Params[0], ctx.Params[1]))
		}), nil
	})
	Register("embedding", func(l model.Layer) (Layer, error) {
		positions, p := l.Flag("positions"), l.Number("dropout")
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1); err != nil {
				return nil, err
			}
			o := ops{dev: ctx.Device}
			x := o.rows(ctx.Params[0], in[0].Tensor)
			if positions {
				x = o.add(x, ctx.Params[1])
			}
			return o.out(o.dropout(ctx, 0, x, p))
		}), nil
	})
	Register("attention", func(l model.Layer) (Layer, error) {
		return attention{heads: int64(l.Int("heads")), dropout: l.Number("dropout")}, nil
	})
	Register("mlp", func(l model.Layer) (Layer, error) {
		p := l.Number("dropout")
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1); err != nil {
				return nil, err
			}
			o, x, w := ops{dev: ctx.Device}, in[0].Tensor, ctx.Params
			hidden := o.gelu(o.linear(o.layerNorm(x, w[0], w[1]), w[2], w[3]))
			return o.out(o.add(x, o.dropout(ctx, 0, o.linear(hidden, w[4], w[5]), p)))
		}), nil
	})
	Register("head", func(l model.Layer) (Layer, error) {
		norm := l.Flag("norm")
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1); err != nil {
				return nil, err
			}
			o, x, w := ops{dev: ctx.Device}, in[0].Tensor, ctx.Params
			if norm {
				x, w = o.layerNorm(x, w[0], w[1]), w[2:]
			}
			return o.out(o.linear(x, w[0], nil))
		}), nil
	})
}

// attention is causal self-attention with its layer norm and residual. Parameters:
// norm gain and shift, qkv weight and bias, out weight and bias.
type attention struct {
	heads   int64
	dropout float64
}

// Forward reads x of shape [rows, positions, width].
func (a attention) Forward(ctx *Context, in Bundle) (Bundle, error) {
	if err := take(in, 1); err != nil {
		return nil, err
	}
	o, x, w := ops{dev: ctx.Device}, in[0].Tensor, ctx.Params
	b, t, c := x.Shape()[0], x.Shape()[1], x.Shape()[2]
	d := c / a.heads
	// [b, t, 3c] -> [3, b*heads, t, d], one copy, so that the products run on whole matrices.
	qkv := o.linear(o.layerNorm(x, w[0], w[1]), w[2], w[3])
	qkv = o.permute(o.view(qkv, []int64{b, t, 3, a.heads, d}), []int64{2, 0, 3, 1, 4})
	qkv = o.reshape(qkv, []int64{3, b * a.heads, t, d})
	q, k, v := o.at(qkv, 0, 0), o.at(qkv, 0, 1), o.at(qkv, 0, 2)
	// -inf above the diagonal, added as the scores are made.
	future := o.call("aten::triu", o.call("aten::full", []int64{t, t}, math.Inf(-1)), 1)
	scores := o.call("aten::baddbmm", future, q, o.transpose(k, 1, 2), 1.0, 1/math.Sqrt(float64(d)))
	weights := o.dropout2(ctx, 1, o.softmax(scores), a.dropout, b)
	y := o.view(o.bmm(weights, v), []int64{b, a.heads, t, d})
	y = o.reshape(o.transpose(y, 1, 2), []int64{b, t, c})
	y = o.dropout(ctx, 0, o.linear(y, w[4], w[5]), a.dropout)
	return o.out(o.add(x, y))
}

// dropout2 is dropout on a tensor whose first dimension is rows times heads: masks are
// keyed by row.
func (o *ops) dropout2(ctx *Context, site uint64, x tensor, p float64, rows int64) tensor {
	if p == 0 || !ctx.Training || o.err != nil {
		return x
	}
	shape := x.Shape()
	byRow := o.view(x, []int64{rows, shape[0] / rows, shape[1], shape[2]})
	return o.view(o.dropout(ctx, site, byRow, p), shape)
}
