package nn

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
)

// ops calls operators on one device and keeps the first error, so that a forward reads like the formula it computes.
// After an error every call returns nil. ops has a method for each operator, and for each formula that layers share.
// Code that needs a result's shape must check err first.
type ops struct {
	dev engine.Device
	err error
}

func (o *ops) call(op string, args ...any) engine.Tensor {
	if o.err != nil {
		return nil
	}
	results, err := o.dev.Call(op, args...)
	if err == nil && len(results) == 0 {
		err = fmt.Errorf("nn: %s yields nothing", op)
	}
	if err != nil {
		o.err = err
		return nil
	}
	return results[0]
}

type tensor = engine.Tensor

func (o *ops) linear(x, w, b tensor) tensor        { return o.call("millrace::linear", x, w, b) }
func (o *ops) linearGelu(x, w, b tensor) tensor    { return o.call("millrace::linear_gelu", x, w, b) }
func (o *ops) relu(x tensor) tensor                { return o.call("aten::relu", x) }
func (o *ops) gelu(x tensor) tensor                { return o.call("aten::gelu", x) }
func (o *ops) tanh(x tensor) tensor                { return o.call("aten::tanh", x) }
func (o *ops) add(a, b tensor) tensor              { return o.call("aten::add.Tensor", a, b) }
func (o *ops) mul(a, b tensor) tensor              { return o.call("aten::mul.Tensor", a, b) }
func (o *ops) cat(xs []tensor, dim int) tensor     { return o.call("aten::cat", xs, dim) }
func (o *ops) reshape(x tensor, to []int64) tensor { return o.call("aten::reshape", x, to) }
func (o *ops) view(x tensor, to []int64) tensor    { return o.call("aten::view", x, to) }
func (o *ops) rows(table, ids tensor) tensor       { return o.call("millrace::embedding", table, ids) }
func (o *ops) sum(x tensor) tensor                 { return o.call("aten::sum", x) }
func (o *ops) equal(a, b tensor) tensor            { return o.call("aten::eq.Tensor", a, b) }
func (o *ops) largest(x tensor) tensor             { return o.call("aten::argmax", x, -1) }

func (o *ops) lstm(x, input, state, bias tensor, reverse bool) tensor {
	return o.call("millrace::lstm", x, input, state, bias, reverse)
}

func (o *ops) layerNorm(x, gain, shift tensor) tensor {
	return o.call("millrace::layer_norm", x, gain, shift, 1e-5)
}

// crossEntropy computes the mean cross entropy over rows.
func (o *ops) crossEntropy(logits, target tensor) tensor {
	return o.call("aten::cross_entropy_loss", logits, target)
}

func (o *ops) contiguous(x tensor) tensor {
	if o.err != nil {
		return nil
	}
	y, err := o.dev.Contiguous(x)
	if err != nil {
		o.err = err
		return nil
	}
	return y
}

func (o *ops) activate(name string, x tensor) tensor {
	switch name {
	case "relu":
		return o.relu(x)
	case "gelu":
		return o.gelu(x)
	case "tanh":
		return o.tanh(x)
	}
	return x
}

// others returns how many outputs of other pieces a piece reads. The last piece reads those of all earlier pieces;
// earlier pieces read none.
func others(p *model.Piece) int {
	if p == nil || !p.Last() {
		return 0
	}
	return p.Before
}

// joined returns the features of a layer or of its piece. For the last piece of a layer these are the features of the
// earlier pieces, followed by the piece's own. For another piece they are only its own, and `whole` is false. An
// undivided layer is whole.
func (o *ops) joined(p *model.Piece, made Bundle, own tensor) (features tensor, whole bool) {
	if p == nil || !p.Last() {
		return own, p == nil
	}
	xs := make([]tensor, 0, len(made)+1)
	for _, x := range made {
		xs = append(xs, x.Tensor)
	}
	return o.cat(append(xs, own), 1+p.Dim), true
}

// out returns the Bundle of a layer with one output.
func (o *ops) out(x tensor) (Bundle, error) {
	x = o.contiguous(x)
	if o.err != nil {
		return nil, o.err
	}
	return Bundle{{Name: "out", Tensor: x}}, nil
}
