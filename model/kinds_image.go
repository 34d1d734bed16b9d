package model

import "fmt"

// image returns the layer's only input, whose shape is channels x height x width.
func image(in []Tensor) (Tensor, error) {
	x, err := one(in, Float)
	if err == nil && len(x.Shape) != 3 {
		err = fmt.Errorf("it reads shape %v; it takes channels x height x width", x.Shape)
	}
	return x, err
}

func batchNorm(channels int) []Param {
	c := []int{channels}
	return []Param{
		{Name: "gain", Shape: c, Init: Init{Kind: "ones"}, NoDecay: true},
		{Name: "shift", Shape: c, Init: Init{Kind: "zeros"}, NoDecay: true},
		{Name: "mean", Shape: c, Init: Init{Kind: "zeros"}, Buffer: true},
		{Name: "variance", Shape: c, Init: Init{Kind: "ones"}, Buffer: true},
	}
}

func init() {
	RegisterKind(Kind{
		Name: "conv2d", Doc: "2-d convolution, with batch norm and an activation behind it on request",
		Settings: []Setting{
			count("channels", nil, "output channels"),
			count("kernel", 3, "side of the window"),
			count("stride", 1, "step"),
			amount("padding", 1, "zeros around the image"),
			flag("batch_norm", false, "normalise over the micro-batch"),
			choice("activation", "none", "the activation", activations...),
			flag("bias", true, "add b; ignored with batch norm"),
		},
		Reads: floats(3, 32, 32), Example: map[string]any{"channels": 16, "activation": "relu"},
		Infer: func(l *Layer, in []Tensor) error {
			x, err := image(in)
			if err != nil {
				return err
			}
			c, k, stride, pad := l.Int("channels"), l.Int("kernel"), l.Int("stride"), l.Int("padding")
			h, w := (x.Shape[1]+2*pad-k)/stride+1, (x.Shape[2]+2*pad-k)/stride+1
			if x.Shape[1]+2*pad < k || x.Shape[2]+2*pad < k {
				return fmt.Errorf("a %dx%d window does not fit an image of %dx%d padded by %d", k, k, x.Shape[1], x.Shape[2], pad)
			}
			fan := x.Shape[0] * k * k
			l.Params = []Param{{Name: "weight", Shape: []int{c, x.Shape[0], k, k}, Init: fanIn(fan)}}
			if l.Flag("batch_norm") {
				l.Params = append(l.Params, batchNorm(c)...)
			} else if l.Flag("bias") {
				l.Params = append(l.Params, Param{Name: "bias", Shape: []int{c}, Init: fanIn(fan), NoDecay: true})
			}
			l.Outputs = out(c, h, w)
			l.ForwardFLOPs = 2 * int64(c) * int64(h) * int64(w) * int64(fan)
			l.InputFLOPs, l.WeightFLOPs = l.ForwardFLOPs, l.ForwardFLOPs
			l.SavedBytes = l.OutputBytes()
			if l.Flag("batch_norm") {
				l.SavedBytes *= 2
			}
			if l.Word("activation") == "gelu" {
				l.SavedBytes += l.OutputBytes()
			}
			return nil
		},
		Features: func(l *Layer) Features {
			f := Features{Count: l.Int("channels"), Params: 1}
			if l.Flag("bias") && !l.Flag("batch_norm") {
				f.Params = 2
			}
			return f
		},
	})
	RegisterKind(Kind{
		Name: "batch_norm", Doc: "normalises each channel over the micro-batch while training",
		Reads: floats(16, 32, 32),
		Infer: func(l *Layer, in []Tensor) error {
			x, err := image(in)
			if err != nil {
				return err
			}
			l.Params = batchNorm(x.Shape[0])
			l.Outputs = out(x.Shape...)
			l.ForwardFLOPs, l.InputFLOPs = 6*x.Elements(), 8*x.Elements()
			l.SavedBytes = x.BytesPerSample()
			return nil
		},
	})
	for _, name := range []string{"max_pool", "avg_pool"} {
		RegisterKind(Kind{
			Name: name, Doc: name + " over square windows that do not overlap",
			Settings: []Setting{count("size", 2, "side of the window")},
			Reads:    floats(16, 32, 32), Example: map[string]any{"size": 2},
			Infer: func(l *Layer, in []Tensor) error {
				x, err := image(in)
				if err != nil {
					return err
				}
				n := l.Int("size")
				if n > x.Shape[1] || n > x.Shape[2] {
					return fmt.Errorf("size %d does not fit an image of %dx%d", n, x.Shape[1], x.Shape[2])
				}
				l.Outputs = out(x.Shape[0], x.Shape[1]/n, x.Shape[2]/n)
				l.ForwardFLOPs, l.InputFLOPs = x.Elements(), x.Elements()
				l.SavedBytes = l.OutputBytes()
				return nil
			},
		})
	}
	RegisterKind(Kind{
		Name: "global_avg_pool", Doc: "the mean of each channel",
		Reads: floats(16, 8, 8),
		Infer: func(l *Layer, in []Tensor) error {
			x, err := image(in)
			if err != nil {
				return err
			}
			l.Outputs = out(x.Shape[0])
			l.ForwardFLOPs, l.InputFLOPs = x.Elements(), x.Elements()
			l.SavedBytes = l.OutputBytes()
			return nil
		},
	})
}
