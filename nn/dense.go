package nn

import (
	"github.com/millrace-ml/millrace/model"
)

func init() {
	Register("dense", func(l model.Layer) (Layer, error) {
		activation, bias := l.Word("activation"), l.Flag("bias")
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1+others(l.Piece)); err != nil {
				return nil, err
			}
			o := ops{dev: ctx.Device}
			var b tensor
			if bias {
				b = ctx.Params[1]
			}
			y, whole := o.joined(l.Piece, in[1:], o.linear(in[0].Tensor, ctx.Params[0], b))
			if !whole {
				return o.out(y)
			}
			return o.out(o.activate(activation, y))
		}), nil
	})
	for _, name := range []string{"relu", "gelu", "tanh"} {
		Register(name, func(model.Layer) (Layer, error) {
			return Func(func(ctx *Context, in Bundle) (Bundle, error) {
				if err := take(in, 1); err != nil {
					return nil, err
				}
				o := ops{dev: ctx.Device}
				return o.out(o.activate(name, in[0].Tensor))
			}), nil
		})
	}
	Register("flatten", func(model.Layer) (Layer, error) {
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1); err != nil {
				return nil, err
			}
			o := ops{dev: ctx.Device}
			return o.out(o.reshape(in[0].Tensor, []int64{in[0].Tensor.Shape()[0], -1}))
		}), nil
	})
	Register("dropout", func(l model.Layer) (Layer, error) {
		p := l.Number("p")
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			if err := take(in, 1); err != nil {
				return nil, err
			}
			o := ops{dev: ctx.Device}
			return o.out(o.dropout(ctx, 0, in[0].Tensor, p))
		}), nil
	})
	Register("add", func(model.Layer) (Layer, error) {
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			o := ops{dev: ctx.Device}
			sum := in[0].Tensor
			for _, x := range in[1:] {
				sum = o.add(sum, x.Tensor)
			}
			return o.out(sum)
		}), nil
	})
	Register("concat", func(model.Layer) (Layer, error) {
		return Func(func(ctx *Context, in Bundle) (Bundle, error) {
			o := ops{dev: ctx.Device}
			xs := make([]tensor, len(in))
			for i, x := range in {
				xs[i] = x.Tensor
			}
			return o.out(o.cat(xs, 1))
		}), nil
	})
	Register("cross_entropy", func(model.Layer) (Layer, error) { return Func(crossEntropy), nil })
}

// crossEntropy yields the mean loss and, in evaluation, how many rows (of a sequence:
// positions) were classified right.
func crossEntropy(ctx *Context, in Bundle) (Bundle, error) {
	if err := take(in, 2); err != nil {
		return nil, err
	}
	o := ops{dev: ctx.Device}
	logits, target := in[0].Tensor, in[1].Tensor
	if shape := logits.Shape(); len(shape) > 2 {
		logits = o.view(logits, []int64{-1, shape[len(shape)-1]})
		target = o.view(target, []int64{-1})
	}
	out := Bundle{{Name: "loss", Tensor: o.crossEntropy(logits, target)}}
	if !ctx.Training {
		right := o.sum(o.equal(o.largest(logits), target))
		out = append(out, Named{Name: "correct", Tensor: right})
	}
	return out, o.err
}
