package nn

import "github.com/millrace-ml/millrace/model"

func init() {
	Register("lstm", func(l model.Layer) (Layer, error) {
		return lstm{bidirectional: l.Flag("bidirectional"), dropout: l.Number("dropout")}, nil
	})
}

// lstm reads sequences of shape [rows, positions, width], joins its inputs along the width, and returns its states.
// Parameters for each direction: weights of the input, weights of the state, biases. State and cell are zero before
// each sequence.
type lstm struct {
	bidirectional bool
	dropout       float64
}

// Forward implements Layer.
func (r lstm) Forward(ctx *Context, in Bundle) (Bundle, error) {
	o, w := ops{dev: ctx.Device}, ctx.Params
	xs := make([]tensor, len(in))
	for i, x := range in {
		xs[i] = x.Tensor
	}
	x := xs[0]
	if len(xs) > 1 {
		x = o.cat(xs, 2)
	}
	h := o.lstm(x, w[0], w[1], w[2], false)
	if r.bidirectional {
		h = o.cat([]tensor{h, o.lstm(x, w[3], w[4], w[5], true)}, 2)
	}
	return o.out(o.lockedDropout(ctx, 0, h, r.dropout))
}
