package nn

import (
	"errors"

	"github.com/millrace-ml/millrace/model"
)

func init() {
	Register("dense", dense)
	for _, name := range []string{"relu", "gelu", "tanh"} {
		Register(name, func(model.Layer) (Layer, error) {
			return unary(func(o *ops, _ *Context, x tensor) tensor { return o.activate(name, x) }), nil
		})
	}
	Register("flatten", func(model.Layer) (Layer, error) {
		return unary(func(o *ops, _ *Context, x tensor) tensor { return o.reshape(x, []int64{x.Shape()[0], -1}) }), nil
	})
	Register("dropout", func(l model.Layer) (Layer, error) {
		p := l.Number("p")
		return unary(func(o *ops, ctx *Context, x tensor) tensor { return o.dropout(ctx, 0, x, p) }), nil
	})
	Register("add", func(model.Layer) (Layer, error) {
		return several(func(o *ops, xs []tensor) tensor {
			sum := xs[0]
			for _, x := range xs[1:] {
				sum = o.add(sum, x)
			}
			return sum
		}), nil
	})
	Register("concat", func(model.Layer) (Layer, error) {
		return several(func(o *ops, xs []tensor) tensor { return o.cat(xs, 1) }), nil
	})
	Register("cross_entropy", func(model.Layer) (Layer, error) { return Func(crossEntropy), nil })
}

// dense makes a layer that computes activation(x w^T + b), with w [outputs, inputs] and x [rows, ..., inputs]. A piece
// of a divided layer computes its own outputs of x w^T + b. The last piece joins the outputs of all pieces and applies
// the activation.
func dense(l model.Layer) (Layer, error) {
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
}

// several makes a Layer with one output and one or more inputs.
func several(formula func(o *ops, xs []tensor) tensor) Layer {
	return Func(func(ctx *Context, in Bundle) (Bundle, error) {
		if len(in) == 0 {
			return nil, errors.New("nn: a layer that reads at least one tensor got none")
		}
		xs := make([]tensor, len(in))
		for i, x := range in {
			xs[i] = x.Tensor
		}
		o := ops{dev: ctx.Device}
		return o.out(formula(&o, xs))
	})
}

// crossEntropy returns the mean loss over all targets, for logits [rows, ..., classes] and targets [rows, ...]. In
// evaluation it also returns the number of targets whose class has the largest logit.
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
