package nn

import "github.com/millrace-ml/millrace/model"

// Batch norm is as in PyTorch: epsilon is 1e-5, and each batch moves the running statistics by a tenth of the distance
// to its own statistics.
const (
	normEps      = 1e-5
	normMomentum = 0.1
)

func init() {
	Register("conv2d", func(l model.Layer) (Layer, error) {
		stride := []int64{int64(l.Int("stride")), int64(l.Int("stride"))}
		padding := []int64{int64(l.Int("padding")), int64(l.Int("padding"))}
		norm, bias, activation := l.Flag("batch_norm"), l.Flag("bias"), l.Word("activation")
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1+others(l.Piece)); err != nil {
				return nil, err
			}
			o := ops{dev: ctx.Device}
			var b tensor
			if bias && !norm {
				b = ctx.Params[1]
			}
			y, whole := o.joined(l.Piece, in[1:], o.call("millrace::conv2d", in[0].Tensor, ctx.Params[0], b, stride, padding))
			if !whole {
				return o.out(y)
			}
			if norm {
				y = o.batchNorm(ctx, y, ctx.Params[1:])
			}
			if activation == "relu" {
				return o.out(o.call("aten::relu_", y)) // only this layer reads y, and the gradient needs only the result
			}
			return o.out(o.activate(activation, y))
		}), nil
	})
	Register("batch_norm", func(model.Layer) (Layer, error) {
		return unary(func(o *ops, ctx *Context, x tensor) tensor { return o.batchNorm(ctx, x, ctx.Params) }), nil
	})
	Register("max_pool", func(l model.Layer) (Layer, error) { return pool("millrace::max_pool", l.Int("size")), nil })
	Register("avg_pool", func(l model.Layer) (Layer, error) {
		size := []int64{int64(l.Int("size")), int64(l.Int("size"))}
		return pool("aten::avg_pool2d", size, size), nil
	})
	Register("global_avg_pool", func(model.Layer) (Layer, error) {
		return unary(func(o *ops, _ *Context, x tensor) tensor {
			return o.call("aten::mean.dim", x, []int64{2, 3})
		}), nil
	})
}

// pool makes a layer of an operator whose arguments are the input and window.
func pool(op string, window ...any) Layer {
	return unary(func(o *ops, _ *Context, x tensor) tensor { return o.call(op, append([]any{x}, window...)...) })
}

// batchNorm normalises x; p holds gain, shift, running mean and running variance. The running statistics move once for
// each micro-batch: a recomputed forward uses the batch's own statistics and does not change the running ones.
func (o *ops) batchNorm(ctx *Context, x tensor, p []tensor) tensor {
	mean, variance := p[2], p[3]
	if ctx.Recomputing {
		mean, variance = nil, nil
	}
	return o.call("aten::batch_norm", x, p[0], p[1], mean, variance, ctx.Training, normMomentum, normEps,
		false)
}
