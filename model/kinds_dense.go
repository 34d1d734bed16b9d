package model

import (
	"fmt"
	"math"
	"slices"
)

// The activations that a layer can end with.
var activations = []string{"none", "relu", "gelu", "tanh"}

// one returns the layer's only input. Its elements must be of type dtype, and it must not be a scalar.
func one(in []Tensor, dtype DType) (Tensor, error) {
	if len(in) != 1 {
		return Tensor{}, fmt.Errorf("it reads %d tensors; it takes one", len(in))
	}
	if in[0].DType != dtype {
		return Tensor{}, fmt.Errorf("it reads a tensor of type %s; it takes %s", in[0].DType, dtype)
	}
	if len(in[0].Shape) == 0 {
		return Tensor{}, fmt.Errorf("it reads a scalar; it takes a tensor with a shape")
	}
	return in[0], nil
}

// floats returns the single tensor that an example reads.
func floats(shape ...int) []Tensor { return []Tensor{{Name: "x", Shape: shape, DType: Float}} }

func out(shape ...int) []Tensor { return []Tensor{{Name: "out", Shape: shape, DType: Float}} }

// fanIn is the uniform initial distribution from -1/sqrt(n) to 1/sqrt(n) for units with n inputs each. It is PyTorch's
// default for linear layers and convolutions.
func fanIn(n int) Init { return Init{Kind: "uniform", High: 1 / math.Sqrt(float64(n))} }

func init() {
	RegisterKind(Kind{
		Name: "dense", Doc: "y = activation(x W^T + b) over the last dimension",
		Settings: []Setting{
			count("width", nil, "outputs"),
			choice("activation", "none", "the activation", activations...),
			flag("bias", true, "add b"),
		},
		Reads: floats(64), Example: map[string]any{"width": 32, "activation": "relu"},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := one(in, Float)
			if err != nil {
				return err
			}
			width, fan := l.Int("width"), x.Shape[len(x.Shape)-1]
			rows := x.Elements() / int64(fan)
			l.Params = []Param{{Name: "weight", Shape: []int{width, fan}, Init: fanIn(fan)}}
			if l.Flag("bias") {
				l.Params = append(l.Params, Param{Name: "bias", Shape: []int{width}, Init: fanIn(fan), NoDecay: true})
			}
			shape := slices.Clone(x.Shape)
			shape[len(shape)-1] = width
			l.Outputs = out(shape...)
			l.ForwardFLOPs = 2 * rows * int64(width) * int64(fan)
			l.InputFLOPs, l.WeightFLOPs = l.ForwardFLOPs, l.ForwardFLOPs
			l.SavedBytes = l.OutputBytes()
			if a := l.Word("activation"); a == "gelu" {
				l.SavedBytes *= 2
			}
			return nil
		},
		Features: func(l *Layer) Features {
			f := Features{Count: l.Int("width"), Dim: len(l.Outputs[0].Shape) - 1, Params: 1}
			if l.Flag("bias") {
				f.Params = 2
			}
			return f
		},
	})
	RegisterKind(Kind{
		Name: "flatten", Doc: "all dimensions of a sample into one",
		Reads: floats(8, 7, 7),
		Infer: func(l *Layer, in []Tensor) error {
			x, err := one(in, Float)
			if err != nil {
				return err
			}
			l.Outputs = out(int(x.Elements()))
			return nil
		},
	})
	for _, name := range activations[1:] {
		RegisterKind(Kind{
			Name: name, Doc: name + ", element by element",
			Reads: floats(64),
			Infer: func(l *Layer, in []Tensor) error {
				x, err := one(in, Float)
				if err != nil {
					return err
				}
				l.Outputs = out(x.Shape...)
				l.ForwardFLOPs, l.InputFLOPs = x.Elements(), x.Elements()
				l.SavedBytes = x.BytesPerSample()
				return nil
			},
		})
	}
	RegisterKind(Kind{
		Name: "dropout", Doc: "zeroes each element with probability p while training and scales the rest",
		Settings: []Setting{probability("p", 0.1, "probability")},
		Reads:    floats(64), Example: map[string]any{"p": 0.2},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := one(in, Float)
			if err != nil {
				return err
			}
			l.Outputs = out(x.Shape...)
			l.ForwardFLOPs, l.InputFLOPs = x.Elements(), x.Elements()
			l.SavedBytes = 2 * x.BytesPerSample()
			return nil
		},
	})
	RegisterKind(Kind{
		Name: "add", Doc: "the sum of all its inputs, which have one shape",
		Reads: []Tensor{floats(64)[0], floats(64)[0]},
		Infer: func(l *Layer, in []Tensor) error {
			if len(in) < 2 {
				return fmt.Errorf("it reads %d tensors; a sum takes two at least", len(in))
			}
			for _, x := range in {
				if x.DType != Float || !slices.Equal(x.Shape, in[0].Shape) {
					return fmt.Errorf("it adds tensors of shapes %v and %v; they must be the same", in[0].Shape, x.Shape)
				}
			}
			l.Outputs = out(in[0].Shape...)
			l.ForwardFLOPs = in[0].Elements() * int64(len(in)-1)
			l.SavedBytes = l.OutputBytes()
			return nil
		},
	})
	RegisterKind(Kind{
		Name: "concat", Doc: "its inputs side by side along the first dimension of a sample",
		Reads: []Tensor{floats(64)[0], floats(32)[0]},
		Infer: func(l *Layer, in []Tensor) error {
			if len(in) < 2 {
				return fmt.Errorf("it reads %d tensors; joining takes two at least", len(in))
			}
			shape := slices.Clone(in[0].Shape)
			if in[0].DType != Float || len(shape) == 0 {
				return fmt.Errorf("it joins a tensor of type %s and shape %v; it takes floats with a shape", in[0].DType, shape)
			}
			for _, x := range in[1:] {
				if x.DType != Float || len(x.Shape) != len(shape) || !slices.Equal(x.Shape[1:], shape[1:]) {
					return fmt.Errorf("it joins shapes %v and %v; all but the first dimension must be the same", in[0].Shape, x.Shape)
				}
				shape[0] += x.Shape[0]
			}
			l.Outputs = out(shape...)
			l.SavedBytes = l.OutputBytes()
			return nil
		},
	})
	RegisterKind(Kind{
		Name: "cross_entropy", Doc: "mean over the micro-batch of the cross entropy of logits against integer targets",
		Reads: []Tensor{floats(10)[0], {Name: "target", Shape: []int{}, DType: Int}},
		Infer: func(l *Layer, in []Tensor) error {
			if len(in) != 2 || in[0].DType != Float || in[1].DType != Int {
				return fmt.Errorf("it takes logits (float) and targets (int), in this order")
			}
			logits, target := in[0], in[1]
			if len(logits.Shape) == 0 || !slices.Equal(logits.Shape[:len(logits.Shape)-1], target.Shape) {
				return fmt.Errorf("logits of shape %v do not fit targets of shape %v; the classes are the logits' last dimension",
					logits.Shape, target.Shape)
			}
			l.Outputs = []Tensor{{Name: "loss", Shape: []int{}, DType: Float}}
			l.ForwardFLOPs, l.InputFLOPs = 5*logits.Elements(), 2*logits.Elements()
			l.SavedBytes = logits.BytesPerSample()
			return nil
		},
		Range: func(l *Layer, in []Tensor) (int, Range) {
			classes, skip := in[0].Shape[len(in[0].Shape)-1], int64(ignored)
			why := fmt.Sprintf("layer %s tells %d classes apart", l.Name, classes)
			if classes == 1 {
				why = fmt.Sprintf("layer %s reads 1 logit, and there is one for each class", l.Name)
			}
			return 1, Range{Most: int64(classes) - 1, Skip: &skip, For: why}
		},
	})
}
