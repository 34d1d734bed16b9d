package model

import "fmt"

func rmsNorm(prefix string, width int) Param {
	return Param{Name: prefix + "gain", Shape: []int{width}, Init: Init{Kind: "ones"}, NoDecay: true}
}

// plain returns a weight without a bias, drawn from a normal distribution with mean 0 and standard deviation std.
func plain(name string, to, from int, std float64) Param {
	return Param{Name: name, Shape: []int{to, from}, Init: Init{Kind: "normal", Std: std}}
}

func init() {
	RegisterKind(Kind{
		Name: "rms_norm", Doc: "divides the last dimension by its root mean square",
		Settings: []Setting{epsilon},
		Reads:    floats(128, 64),
		Infer: func(l *Layer, in []Tensor) error {
			x, err := one(in, Float)
			if err != nil {
				return err
			}
			l.Params = []Param{rmsNorm("", x.Shape[len(x.Shape)-1])}
			l.Outputs = out(x.Shape...)
			l.ForwardFLOPs, l.InputFLOPs, l.WeightFLOPs = 4*x.Elements(), 7*x.Elements(), 2*x.Elements()
			l.SavedBytes = 2 * l.OutputBytes() // x divided by its root mean square, and that times the gain
			return nil
		},
	})
	RegisterKind(Kind{
		Name: "rotary_attention",
		Doc:  "x + attention(rms_norm(x)): causal, rotary positions, heads in groups that share keys and values, no biases",
		Settings: []Setting{
			count("heads", nil, "heads; they divide the width, each into an even part"),
			count("kv_heads", nil, "heads of keys and values; they divide the heads"),
			theta,
			epsilon,
			count("depth", 1, "blocks in the model; output weights start 1/sqrt(2 depth) as large"),
		},
		Reads: floats(128, 64), Example: map[string]any{"heads": 4, "kv_heads": 2},
		Infer: inferRotary,
	})
	RegisterKind(Kind{
		Name: "swiglu", Doc: "x + W3 (silu(W1 n) * (W2 n)), n = rms_norm(x), no biases",
		Settings: []Setting{
			count("hidden", nil, "rows of W1 and W2"), epsilon,
			count("depth", 1, "blocks in the model: scales the start of W3 by 1/sqrt(2 depth)"),
		},
		Reads: floats(128, 64), Example: map[string]any{"hidden": 176},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := sequence(in)
			if err != nil {
				return err
			}
			t, c, h := x.Shape[0], x.Shape[1], l.Int("hidden")
			l.Params = []Param{rmsNorm("norm.", c), plain("gate.weight", h, c, 0.02), plain("up.weight", h, c, 0.02),
				plain("down.weight", c, h, residualStd(l))}
			l.Outputs = out(t, c)
			l.ForwardFLOPs = 3 * 2 * int64(t) * int64(c) * int64(h)
			l.InputFLOPs, l.WeightFLOPs = l.ForwardFLOPs, l.ForwardFLOPs
			// Saved are x divided by its root mean square, the norm's output n, W1 n, its silu, W2 n, their product,
			// and the output.
			l.SavedBytes = 4 * int64(t) * (3*int64(c) + 4*int64(h))
			return nil
		},
	})
}

// inferRotary infers the shapes and the work of attention with rotary positions and grouped queries. Sources: RoFormer
// (Su et al., 2021) and GQA (Ainslie et al., 2023).
func inferRotary(l *Layer, in []Tensor) error {
	x, err := sequence(in)
	if err != nil {
		return err
	}
	t, c, heads, groups := x.Shape[0], x.Shape[1], l.Int("heads"), l.Int("kv_heads")
	if c%heads != 0 || c/heads%2 != 0 {
		return fmt.Errorf("%d heads do not divide a width of %d into even parts", heads, c)
	}
	if heads%groups != 0 {
		return fmt.Errorf("kv_heads is %d; it divides the %d heads", groups, heads)
	}
	shared := c / heads * groups
	l.Params = []Param{rmsNorm("norm.", c), plain("q.weight", c, c, 0.02), plain("k.weight", shared, c, 0.02),
		plain("v.weight", shared, c, 0.02), plain("out.weight", c, c, residualStd(l))}
	l.Outputs = out(t, c)
	products := 2 * int64(t) * int64(c) * int64(2*c+2*shared)
	scores := 2 * 2 * int64(t) * int64(t) * int64(c) // q k^T and p v
	l.ForwardFLOPs = products + scores
	l.InputFLOPs, l.WeightFLOPs = products+2*scores, products
	// Saved are x divided by its root mean square, the norm's output, q, k and v of all heads, the scores, their
	// product with v, and the output.
	l.SavedBytes = 4 * (int64(t)*int64(c)*7 + int64(heads)*int64(t)*int64(t))
	return nil
}
