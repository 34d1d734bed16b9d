package model

import "fmt"

// The kinds of this file are only descriptions: they have shapes, parameters, FLOPs and bytes. They serve to plan and
// simulate the papers' workloads. Package nn cannot compute these kinds, and refuses to build a model with one.

func init() {
	RegisterKind(Kind{
		Name: "attention_to", Doc: "additive attention of a sequence to a memory: a context for each position (described, " +
			"not computed)",
		Reads: []Tensor{floats(29, 64)[0], floats(29, 64)[0]},
		Infer: attentionTo,
	})
	RegisterKind(Kind{
		Name: "encoder_attention", Doc: "attention without the causal mask: the same work (described, not computed)",
		Settings: []Setting{
			count("heads", nil, "heads; they divide the width"),
			probability("dropout", 0.0, "probability"),
			count("depth", 1, "blocks in the model"),
		},
		Reads: floats(128, 64), Example: map[string]any{"heads": 4},
		Infer: inferAttention,
	})
	RegisterKind(Kind{
		Name: "relative_attention", Doc: "attention with relative positions, over a memory and itself (described, not " +
			"computed)",
		Settings: []Setting{
			count("heads", nil, "heads; they divide the width"),
			amount("memory", 0, "positions remembered before the first"),
		},
		Reads: floats(128, 64), Example: map[string]any{"heads": 4, "memory": 128},
		Infer: relativeAttention,
	})
	RegisterKind(Kind{
		Name: "window_pool", Doc: "max pool over windows that may overlap (described, not computed)",
		Settings: []Setting{
			count("size", 3, "side of the window"),
			count("stride", 2, "step"),
			amount("padding", 0, "around the image"),
		},
		Reads: floats(64, 112, 112), Example: map[string]any{"size": 3, "stride": 2},
		Infer: windowPool,
	})
	RegisterKind(Kind{
		Name: "amoeba_cell", Doc: "a cell of AmoebaNet-D: reads the cells before it and before that (described, not " +
			"computed)",
		Settings: []Setting{
			count("channels", nil, "of each part of its output"),
			flag("reduction", false, "halve the image"),
		},
		Reads: []Tensor{floats(64, 28, 28)[0], floats(64, 28, 28)[0]}, Example: map[string]any{"channels": 64},
		Infer: amoebaCell,
	})
}

// attentionTo infers the shapes and the work of additive attention (Bahdanau, Cho and Bengio, 2015). For each pair of a
// query q and a memory position m, the score is v tanh(W q + U m + b), with the weights v, W and U and the bias b.
func attentionTo(l *Layer, in []Tensor) error {
	if len(in) != 2 {
		return fmt.Errorf("it reads %d tensors; it takes a sequence and the memory that it attends to", len(in))
	}
	for _, x := range in {
		if x.DType != Float || len(x.Shape) != 2 {
			return fmt.Errorf("it reads %s of shape %v; it takes positions x width", x.DType, x.Shape)
		}
	}
	t, q, m, width := int64(in[0].Shape[0]), in[0].Shape[1], int64(in[1].Shape[0]), in[1].Shape[1]
	l.Params = []Param{
		{Name: "query", Shape: []int{width, q}, Init: fanIn(q)}, {Name: "memory", Shape: []int{width, width},
			Init: fanIn(width)},
		{Name: "score", Shape: []int{width}, Init: fanIn(width)}, {Name: "bias", Shape: []int{width}, Init: fanIn(width),
			NoDecay: true},
	}
	l.Outputs = out(in[0].Shape[0], width)
	products := 2 * (t*int64(q) + m*int64(width)) * int64(width)
	pairs := t * m * int64(width) * 6 // sum, tanh and dot product; then the weighted sum
	l.ForwardFLOPs = products + pairs
	l.InputFLOPs, l.WeightFLOPs = products+pairs, products
	l.SavedBytes = 4 * (t*m*int64(width) + t*int64(width) + t*m)
	return nil
}

// relativeAttention is the attention of Transformer-XL and XLNet. Compared with plain attention, it has a fifth
// product, for the positions, and a second table of scores.
func relativeAttention(l *Layer, in []Tensor) error {
	x, err := sequence(in)
	if err != nil {
		return err
	}
	t, c, heads := x.Shape[0], x.Shape[1], l.Int("heads")
	if c%heads != 0 {
		return fmt.Errorf("%d heads do not divide a width of %d", heads, c)
	}
	keys := t + l.Int("memory")
	l.Params = append(layerNorm("norm.", c), linear("qkv.", 3*c, c, 0.02)...)
	l.Params = append(l.Params, linear("out.", c, c, 0.02)...)
	l.Params = append(l.Params, linear("relative.", c, c, 0.02)...)
	l.Params = append(l.Params, Param{Name: "biases", Shape: []int{2, c}, Init: Init{Kind: "zeros"}, NoDecay: true})
	l.Outputs = out(t, c)
	T, K, C := int64(t), int64(keys), int64(c)
	products := 2 * C * C * (2*T + 2*K + K + T) // query and output; keys and values; positions in both directions
	scores := 2 * 3 * T * K * C                 // by content, by position, and for weighting the values
	l.ForwardFLOPs = products + scores
	l.InputFLOPs, l.WeightFLOPs = products+2*scores, products
	l.SavedBytes = 4 * (C*(3*T+3*K) + 2*int64(heads)*T*K)
	return nil
}

func windowPool(l *Layer, in []Tensor) error {
	x, err := image(in)
	if err != nil {
		return err
	}
	n, stride, pad := l.Int("size"), l.Int("stride"), l.Int("padding")
	if pad >= n || x.Shape[1]+2*pad < n || x.Shape[2]+2*pad < n {
		return fmt.Errorf("size %d, stride %d, padding %d do not fit an image of %dx%d", n, stride, pad,
			x.Shape[1], x.Shape[2])
	}
	l.Outputs = out(x.Shape[0], (x.Shape[1]+2*pad-n)/stride+1, (x.Shape[2]+2*pad-n)/stride+1)
	l.ForwardFLOPs = l.Outputs[0].Elements() * int64(n) * int64(n)
	l.InputFLOPs = l.Outputs[0].Elements()
	l.SavedBytes = 3 * l.OutputBytes() // the output, and 64-bit indices of the maxima
	return nil
}

// amoebaCell is the cell of AmoebaNet-D, the model that GPipe scales. It is described by Real et al., Regularized
// Evolution for Image Classifier Architecture Search, AAAI 2019, figure of AmoebaNet-D. First, 1x1 convolutions give
// both inputs c channels. Then five pairs of operations are added up. A normal cell has three 1x1 convolutions, two
// 1x7-7x1 bottlenecks and pools; its output has four parts. A reduction cell has a 3x3 bottleneck, a 1x7-7x1
// bottleneck, a 1x1 convolution and pools; its output has three parts. A bottleneck works on c/4 channels. Every
// convolution has batch norm.
func amoebaCell(l *Layer, in []Tensor) error {
	if len(in) != 2 {
		return fmt.Errorf("it reads %d tensors; it takes the cell before it and the one before that", len(in))
	}
	for _, x := range in {
		if x.DType != Float || len(x.Shape) != 3 {
			return fmt.Errorf("it reads %s of shape %v; it takes channels x height x width", x.DType, x.Shape)
		}
	}
	c, parts := l.Int("channels"), 4
	if c < 4 || c > maxSample {
		return fmt.Errorf("channels is %d; it must be 4 at least", c)
	}
	h, w := in[0].Shape[1], in[0].Shape[2]
	places := int64(h) * int64(w) // positions of the output; the inputs may have more
	C, Q := int64(c), int64(c/4)
	var weights, flops int64
	conv := func(times, from, to, window, at int64) {
		weights += times * from * to * window
		flops += times * 2 * from * to * window * at
	}
	conv(1, int64(in[0].Shape[0]), C, 1, places)
	conv(1, int64(in[1].Shape[0]), C, 1, places)
	bottleneck := func(times, window, count, at int64) {
		conv(times, C, Q, 1, at)
		conv(times*count, Q, Q, window, at)
		conv(times, Q, C, 1, at)
	}
	convs := int64(2 + 3 + 2*4)
	if l.Flag("reduction") {
		h, w, parts = (h+1)/2, (w+1)/2, 3
		less := int64(h) * int64(w)
		bottleneck(1, 9, 1, less)
		bottleneck(1, 7, 2, less)
		conv(1, C, C, 1, less)
		convs = 2 + 3 + 4 + 1
		places = less
	} else {
		conv(3, C, C, 1, places)
		bottleneck(2, 7, 2, places)
	}
	if h < 1 || w < 1 || weights > maxParameter {
		return fmt.Errorf("channels %d on an image of %dx%d is beyond what a cell can be", c, h, w)
	}
	l.Params = []Param{
		{Name: "weights", Shape: []int{int(weights)}, Init: fanIn(c)},
		{Name: "gain", Shape: []int{int(convs) * c}, Init: Init{Kind: "ones"}, NoDecay: true},
		{Name: "shift", Shape: []int{int(convs) * c}, Init: Init{Kind: "zeros"}, NoDecay: true},
	}
	l.Outputs = out(parts*c, h, w)
	l.ForwardFLOPs = flops + places*C*80 // pools, sums and normalisation
	l.InputFLOPs, l.WeightFLOPs = flops+places*C*80, flops
	// The saved bytes: what every operation read, and its normalised output.
	l.SavedBytes = 4 * places * C * (2*convs + 4)
	return nil
}
