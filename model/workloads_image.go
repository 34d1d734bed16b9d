package model

import "fmt"

// The image networks that the papers plan for, layer by layer.

func init() {
	image := count("image", 224, "side of the image")
	classes := count("classes", 1000, "classes")
	width := count("width", 64, "channels of the first group's convolutions")
	forVGG := Training{Optimizer: "adamw", Rate: 3e-4, Warmup: 20}
	families = append(families,
		Family{Name: "alexnet", Doc: "Krizhevsky, One Weird Trick for Parallelizing CNNs (2014): the one-tower AlexNet " +
			"that PipeDream profiles", Settings: []Setting{image, classes}, describe: alexnet},
		Family{Name: "vgg16", Doc: "Simonyan and Zisserman (2015), configuration D",
			Settings: []Setting{image, classes, width}, Training: forVGG,
			describe: func(l *Layer) ([]Tensor, []node, error) { return vgg(l, []int{2, 2, 3, 3, 3}) }},
		Family{Name: "vgg19", Doc: "Simonyan and Zisserman (2015), configuration E",
			Settings: []Setting{image, classes, width}, Training: forVGG,
			describe: func(l *Layer) ([]Tensor, []node, error) { return vgg(l, []int{2, 2, 4, 4, 4}) }},
		Family{Name: "resnet50", Doc: "He et al. (2016), 50 layers with bottleneck blocks",
			Settings: []Setting{image, classes}, describe: resnet50},
		amoeba("amoebanet-18", 18, 208), amoeba("amoebanet-36", 36, 512))
}

// photographs returns the inputs of an image network whose layers make the side of the image 32 times smaller.
func photographs(l *Layer) ([]Tensor, error) {
	n := l.Int("image")
	if n < 64 || n > 4096 {
		return nil, fmt.Errorf("image is %d; it is 64 to 4096", n)
	}
	return []Tensor{{Name: "input", Shape: []int{3, n, n}, DType: Float}, {Name: "target", Shape: []int{},
		DType: Int}}, nil
}

func conv(channels, kernel, stride, padding int) map[string]any {
	return map[string]any{"channels": channels, "kernel": kernel, "stride": stride, "padding": padding,
		"activation": "relu"}
}

func (c *chain) classifier(l *Layer, widths ...int) {
	c.add("flatten", "flatten", nil)
	for i, w := range widths {
		c.add(fmt.Sprintf("fc%d", i+1), "dense", map[string]any{"width": w, "activation": "relu"})
		c.add(fmt.Sprintf("drop%d", i+1), "dropout", map[string]any{"p": 0.5})
	}
	c.add(fmt.Sprintf("fc%d", len(widths)+1), "dense", map[string]any{"width": l.Int("classes")})
}

func alexnet(l *Layer) ([]Tensor, []node, error) {
	inputs, err := photographs(l)
	c := chain{last: "input"}
	c.add("conv1", "conv2d", conv(64, 11, 4, 2))
	c.add("pool1", "window_pool", nil)
	c.add("conv2", "conv2d", conv(192, 5, 1, 2))
	c.add("pool2", "window_pool", nil)
	c.add("conv3", "conv2d", conv(384, 3, 1, 1))
	c.add("conv4", "conv2d", conv(256, 3, 1, 1))
	c.add("conv5", "conv2d", conv(256, 3, 1, 1))
	c.add("pool5", "window_pool", nil)
	c.classifier(l, 4096, 4096)
	return inputs, c.loss(), err
}

func vgg(l *Layer, convs []int) ([]Tensor, []node, error) {
	inputs, err := photographs(l)
	width := l.Int("width")
	if width < 1 || width > 1<<16 {
		return nil, nil, fmt.Errorf("width is %d; it is 1 to 65536", width)
	}
	c := chain{last: "input"}
	for i, n := range convs {
		for j := range n {
			c.add(fmt.Sprintf("conv%d_%d", i+1, j+1), "conv2d", conv(width<<min(i, 3), 3, 1, 1))
		}
		c.add(fmt.Sprintf("pool%d", i+1), "max_pool", nil)
	}
	c.classifier(l, 4096, 4096)
	return inputs, c.loss(), err
}

// resnet50 puts the stride of a block into the block's 3x3 convolution, as common implementations do.
func resnet50(l *Layer) ([]Tensor, []node, error) {
	inputs, err := photographs(l)
	normal := func(channels, kernel, stride int, activation string) map[string]any {
		s := conv(channels, kernel, stride, kernel/2)
		s["batch_norm"], s["activation"] = true, activation
		return s
	}
	c := chain{last: "input"}
	c.add("conv1", "conv2d", normal(64, 7, 2, "relu"))
	c.add("pool1", "window_pool", map[string]any{"padding": 1})
	for i, blocks := range []int{3, 4, 6, 3} {
		for j := range blocks {
			width, stride := 64<<i, 1
			if j == 0 && i > 0 {
				stride = 2
			}
			at, skip := fmt.Sprintf("block%d_%d.", i+2, j+1), c.last
			c.add(at+"reduce", "conv2d", normal(width, 1, 1, "relu"))
			c.add(at+"conv", "conv2d", normal(width, 3, stride, "relu"))
			c.add(at+"expand", "conv2d", normal(4*width, 1, 1, "none"))
			main := c.last
			if j == 0 {
				c.last = skip
				c.add(at+"project", "conv2d", normal(4*width, 1, stride, "none"))
				skip = c.last
			}
			c.nodes = append(c.nodes, node{Name: at + "add", Kind: "add", From: []string{main, skip}})
			c.last = at + "add"
			c.add(at+"relu", "relu", nil)
		}
	}
	c.add("pool5", "global_avg_pool", nil)
	c.add("fc", "dense", map[string]any{"width": l.Int("classes")})
	return inputs, c.loss(), err
}

// amoeba is AmoebaNet-D with these numbers of normal cells and filters, counted as in GPipe (NeurIPS 2019, Table 1).
// With (cells, filters) = (18, 208) it has 82 million parameters, and with (36, 544) it has 1.05 billion. DAPPLE's
// AmoebaNet-36 with 933 million must be (36, 512), although the paper does not say so.
func amoeba(name string, cells, filters int) Family {
	return Family{
		Name: name, Doc: fmt.Sprintf("AmoebaNet-D of %d normal cells and %d filters, as GPipe scales it; every cell "+
			"reads the two before it", cells, filters),
		Settings: []Setting{
			count("image", 224, "side of the image"),
			count("classes", 1000, "classes"),
			repeats("cells", cells, "normal cells, a multiple of 3"),
			count("filters", filters, "channels of the first normal cells, a multiple of 4"),
		},
		describe: func(l *Layer) ([]Tensor, []node, error) {
			inputs, err := photographs(l)
			n, filters := l.Int("cells"), l.Int("filters")
			if n < 3 || n%3 != 0 || n > maxRepeats {
				return nil, nil, fmt.Errorf("cells is %d; a multiple of 3, up to %d", n, maxRepeats)
			}
			if filters < 16 || filters%4 != 0 || filters > 1<<16 {
				return nil, nil, fmt.Errorf("filters is %d; a multiple of 4 from 16 to 65536", filters)
			}
			stem := conv(filters/4, 3, 2, 1)
			stem["batch_norm"] = true
			c := chain{last: "input"}
			c.add("stem", "conv2d", stem)
			before := c.last
			cell := func(name string, channels int, reduction bool) {
				c.nodes = append(c.nodes, node{Name: name, Kind: "amoeba_cell", From: []string{c.last, before},
					Settings: map[string]any{"channels": channels, "reduction": reduction}})
				before, c.last = c.last, name
			}
			cell("reduction1", filters/2, true)
			cell("reduction2", filters, true)
			for group := range 3 {
				if group > 0 {
					cell(fmt.Sprintf("reduction%d", group+2), filters<<group, true)
				}
				for i := range n / 3 {
					cell(fmt.Sprintf("cell%d", group*(n/3)+i+1), filters<<group, false)
				}
			}
			c.add("pool", "global_avg_pool", nil)
			c.add("fc", "dense", map[string]any{"width": l.Int("classes")})
			return inputs, c.loss(), err
		},
	}
}
