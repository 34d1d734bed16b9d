package nn

import (
	"github.com/millrace-ml/millrace/model"
)

func init() {
	Register("layer_norm", func(model.Layer) (Layer, error) {
		return unary(func(o *ops, ctx *Context, x tensor) tensor {
			return o.layerNorm(x, ctx.Params[0], ctx.Params[1])
		}), nil
	})
	Register("embedding", func(l model.Layer) (Layer, error) {
		positions, p := l.Flag("positions"), l.Number("dropout")
		return unary(func(o *ops, ctx *Context, ids tensor) tensor {
			x := o.rows(ctx.Params[0], ids)
			if positions {
				x = o.add(x, ctx.Params[1])
			}
			return o.dropout(ctx, 0, x, p)
		}), nil
	})
	Register("attention", func(l model.Layer) (Layer, error) {
		return attention{heads: int64(l.Int("heads")), dropout: l.Number("dropout")}, nil
	})
	Register("mlp", func(l model.Layer) (Layer, error) {
		p, byTanh := l.Number("dropout"), l.Word("activation") == "gelu_tanh"
		return unary(func(o *ops, ctx *Context, x tensor) tensor {
			w := ctx.Params
			n := o.layerNorm(x, w[0], w[1])
			var hidden tensor
			if byTanh {
				hidden = o.call("aten::gelu", o.linear(n, w[2], w[3]), "tanh")
			} else {
				hidden = o.linearGelu(n, w[2], w[3])
			}
			return o.residual(ctx, x, hidden, w[4], w[5], p)
		}), nil
	})
	Register("head", func(l model.Layer) (Layer, error) {
		norm := l.Flag("norm")
		return unary(func(o *ops, ctx *Context, x tensor) tensor {
			w := ctx.Params
			if norm {
				x, w = o.layerNorm(x, w[0], w[1]), w[2:]
			}
			return o.linear(x, w[0], nil)
		}), nil
	})
}

// attention is causal self-attention with its layer norm and residual. Its parameters are the norm's gain and shift,
// the weight and bias of qkv, and the weight and bias of the output.
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
	qkv := o.linear(o.layerNorm(x, w[0], w[1]), w[2], w[3])
	y := o.call("millrace::causal_attention", qkv, a.heads, o.scoreMask(ctx, 1, x, a.heads, a.dropout))
	return o.out(o.residual(ctx, x, y, w[4], w[5], a.dropout))
}

// scoreMask returns a dropout mask for the scores of x [rows, positions, width], or nil if nothing is dropped.
func (o *ops) scoreMask(ctx *Context, site uint64, x tensor, heads int64, p float64) tensor {
	if p == 0 || !ctx.Training || o.err != nil {
		return nil
	}
	rows, t := x.Shape()[0], x.Shape()[1]
	return o.mask(ctx, site, x, []int64{rows, heads, t, t}, p)
}

// residual computes x + dropout(linear(y, w, b)).
func (o *ops) residual(ctx *Context, x, y, w, b tensor, p float64) tensor {
	if p == 0 || !ctx.Training {
		return o.call("millrace::linear_add", x, y, w, b)
	}
	return o.add(x, o.dropout(ctx, 0, o.linear(y, w, b), p))
}
