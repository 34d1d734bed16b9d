package extending_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// begin: layer
func init() {
	model.RegisterKind(model.Kind{
		Name: "product", Doc: "y = a b, element by element: a gate",
		Reads: []model.Tensor{
			{Name: "a", Shape: []int{8}, DType: model.Float}, {Name: "b", Shape: []int{8}, DType: model.Float},
		},
		Infer: func(l *model.Layer, in []model.Tensor) error {
			if len(in) != 2 || in[0].DType != model.Float || !slices.Equal(in[0].Shape, in[1].Shape) {
				return fmt.Errorf("it reads %v; it takes two tensors of floats of one shape", in)
			}
			l.Outputs = []model.Tensor{{Name: "out", Shape: in[0].Shape, DType: model.Float}}
			l.ForwardFLOPs, l.InputFLOPs = in[0].Elements(), 2*in[0].Elements()
			l.SavedBytes = l.OutputBytes()
			return nil
		},
	})
	nn.Register("product", func(model.Layer) (nn.Layer, error) {
		return nn.Func(func(ctx *nn.Context, in nn.Bundle) (nn.Bundle, error) {
			y, err := ctx.Device.Call("aten::mul.Tensor", in[0].Tensor, in[1].Tensor)
			if err != nil {
				return nil, err
			}
			return nn.Bundle{{Name: "out", Tensor: y[0]}}, nil
		}), nil
	})
}

// end: layer

// A registered layer kind can be used in a model file, and every engine can compute it.
func Example_layer() {
	m, err := model.Parse(strings.NewReader(`
name: gated
inputs: [{name: input, shape: [3], dtype: float}, {name: target, shape: [], dtype: int}]
layers:
  - {name: gate, kind: product, from: [input, input]}
  - {name: loss, kind: cross_entropy, from: [gate, target]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	layers, err := nn.Build(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	device, err := ref.New().Open(0, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := device.Full(engine.Float64, []int64{2, 3}, 5)
	if err != nil {
		fmt.Println(err)
		return
	}
	read := nn.Named{Name: "input", Tensor: x}
	out, err := layers[0].Forward(&nn.Context{Device: device}, nn.Bundle{read, read})
	if err != nil {
		fmt.Println(err)
		return
	}
	sum, err := device.Call("aten::sum", out[0].Tensor)
	if err != nil {
		fmt.Println(err)
		return
	}
	total, err := device.Item(sum[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out[0].Tensor.Shape(), "sum", total)
	// Output:
	// [2 3] sum 150
}
