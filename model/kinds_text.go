package model

import (
	"fmt"
	"math"
)

// sequence returns the layer's only input, whose shape is positions x width.
func sequence(in []Tensor) (Tensor, error) {
	x, err := one(in, Float)
	if err == nil && len(x.Shape) != 2 {
		err = fmt.Errorf("it reads shape %v; it takes positions x width", x.Shape)
	}
	return x, err
}

func layerNorm(prefix string, width int) []Param {
	return []Param{
		{Name: prefix + "gain", Shape: []int{width}, Init: Init{Kind: "ones"}, NoDecay: true},
		{Name: prefix + "shift", Shape: []int{width}, Init: Init{Kind: "zeros"}, NoDecay: true},
	}
}

// linear returns a weight and its bias. As in transformers, the weight is drawn from a normal distribution with mean 0
// and standard deviation std, and the bias is zero.
func linear(prefix string, to, from int, std float64) []Param {
	return []Param{
		{Name: prefix + "weight", Shape: []int{to, from}, Init: Init{Kind: "normal", Std: std}},
		{Name: prefix + "bias", Shape: []int{to}, Init: Init{Kind: "zeros"}, NoDecay: true},
	}
}

func init() {
	RegisterKind(Kind{
		Name: "layer_norm", Doc: "normalises the last dimension",
		Reads: floats(128, 256),
		Infer: func(l *Layer, in []Tensor) error {
			x, err := one(in, Float)
			if err != nil {
				return err
			}
			l.Params = layerNorm("", x.Shape[len(x.Shape)-1])
			l.Outputs = out(x.Shape...)
			l.ForwardFLOPs, l.InputFLOPs = 6*x.Elements(), 8*x.Elements()
			l.SavedBytes = l.OutputBytes()
			return nil
		},
	})
	RegisterKind(Kind{
		Name: "embedding", Doc: "a row of a table for each token, and of another for its position, on request",
		Settings: []Setting{
			count("vocabulary", nil, "rows of the table"),
			count("width", nil, "columns"),
			flag("positions", true, "add a learned embedding of the position"),
			probability("dropout", 0.0, "probability"),
		},
		Reads:   []Tensor{{Name: "tokens", Shape: []int{128}, DType: Int}},
		Example: map[string]any{"vocabulary": 256, "width": 64},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := one(in, Int)
			if err != nil {
				return err
			}
			if len(x.Shape) != 1 {
				return fmt.Errorf("it reads shape %v; it takes a row of tokens", x.Shape)
			}
			vocabulary, width := l.Int("vocabulary"), l.Int("width")
			l.Params = []Param{{Name: "weight", Shape: []int{vocabulary, width}, Init: Init{Kind: "normal", Std: 0.02}}}
			if l.Flag("positions") {
				l.Params = append(l.Params, Param{Name: "position", Shape: []int{x.Shape[0], width},
					Init: Init{Kind: "normal", Std: 0.02}})
			}
			l.Outputs = out(x.Shape[0], width)
			l.ForwardFLOPs, l.WeightFLOPs = l.Outputs[0].Elements(), l.Outputs[0].Elements()
			l.SavedBytes = l.OutputBytes()
			return nil
		},
		Range: func(l *Layer, _ []Tensor) (int, Range) {
			n := l.Int("vocabulary")
			return 0, Range{Most: int64(n) - 1, For: fmt.Sprintf("layer %s has a table of %d rows", l.Name, n)}
		},
	})
	RegisterKind(Kind{
		Name: "attention", Doc: "x + attention(layer_norm(x)): causal self-attention with its residual",
		Settings: []Setting{
			count("heads", nil, "heads; they divide the width"),
			probability("dropout", 0.0, "probability"),
			count("depth", 1, "blocks in the model; output weights start 1/sqrt(2 depth) as large"),
		},
		Reads: floats(128, 64), Example: map[string]any{"heads": 4},
		Infer: inferAttention,
	})
	RegisterKind(Kind{
		Name: "mlp", Doc: "x + W2 gelu(W1 layer_norm(x)): the other half of a transformer block",
		Settings: []Setting{
			count("expand", 4, "hidden width over width"),
			choice("activation", "gelu", "the activation; gelu_tanh is by a tanh, as GPT-2 has it", "gelu", "gelu_tanh"),
			probability("dropout", 0.0, "probability"),
			count("depth", 1, "blocks in the model: scales the start of W2 by 1/sqrt(2 depth)"),
		},
		Reads: floats(128, 64), Example: map[string]any{"expand": 4},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := sequence(in)
			if err != nil {
				return err
			}
			t, c := x.Shape[0], x.Shape[1]
			h := c * l.Int("expand")
			l.Params = append(layerNorm("norm.", c), linear("up.", h, c, 0.02)...)
			l.Params = append(l.Params, linear("down.", c, h, residualStd(l))...)
			l.Outputs = out(t, c)
			l.ForwardFLOPs = 2 * 2 * int64(t) * int64(c) * int64(h)
			l.InputFLOPs, l.WeightFLOPs = l.ForwardFLOPs, l.ForwardFLOPs
			l.SavedBytes = 4 * int64(t) * int64(2*c+2*h)
			return nil
		},
	})
	RegisterKind(Kind{
		Name: "head", Doc: "logits: W layer_norm(x), W tied to an embedding on request",
		Settings: []Setting{
			count("vocabulary", nil, "classes"),
			word("tied", "", "full name of the parameter to share, like embed.weight"),
			flag("norm", true, "normalise x first"),
		},
		Reads: floats(128, 64), Example: map[string]any{"vocabulary": 256},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := sequence(in)
			if err != nil {
				return err
			}
			t, c, v := x.Shape[0], x.Shape[1], l.Int("vocabulary")
			if l.Flag("norm") {
				l.Params = layerNorm("norm.", c)
			}
			l.Params = append(l.Params, Param{Name: "weight", Shape: []int{v, c}, Init: Init{Kind: "normal", Std: 0.02},
				Tied: l.Word("tied")})
			l.Outputs = out(t, v)
			l.ForwardFLOPs = 2 * int64(t) * int64(c) * int64(v)
			l.InputFLOPs, l.WeightFLOPs = l.ForwardFLOPs, l.ForwardFLOPs
			l.SavedBytes = l.OutputBytes()
			if l.Flag("norm") {
				l.SavedBytes += x.BytesPerSample()
			}
			return nil
		},
	})
}

// residualStd is the initial deviation of the last weights of a residual branch: 0.02 / sqrt(2 depth). With it, the sum
// of all branches does not grow with the depth (Radford et al., Language Models are Unsupervised Multitask Learners,
// §2.3).
func residualStd(l *Layer) float64 { return 0.02 / math.Sqrt(2*float64(max(1, l.Int("depth")))) }

// inferAttention infers the shapes and the work of self-attention, causal or not.
func inferAttention(l *Layer, in []Tensor) error {
	x, err := sequence(in)
	if err != nil {
		return err
	}
	t, c, heads := x.Shape[0], x.Shape[1], l.Int("heads")
	if c%heads != 0 {
		return fmt.Errorf("%d heads do not divide a width of %d", heads, c)
	}
	l.Params = append(layerNorm("norm.", c), linear("qkv.", 3*c, c, 0.02)...)
	l.Params = append(l.Params, linear("out.", c, c, residualStd(l))...)
	l.Outputs = out(t, c)
	products := 2 * int64(t) * int64(c) * int64(4*c) // of the linear layers qkv and out
	scores := 2 * 2 * int64(t) * int64(t) * int64(c) // q k^T and p v
	l.ForwardFLOPs = products + scores
	l.InputFLOPs, l.WeightFLOPs = products+2*scores, products
	// SavedBytes counts six tensors like the output: the layer norm's output, q, k and v, the product of the scores
	// with v, and the output. It also counts the scores.
	l.SavedBytes = 4 * (int64(t)*int64(c)*6 + int64(heads)*int64(t)*int64(t))
	return nil
}
