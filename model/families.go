package model

import (
	"fmt"
	"slices"
	"strings"
)

// Family is a built-in model with settings.
type Family struct {
	Name     string
	Doc      string
	Settings []Setting
	describe func(l *Layer) ([]Tensor, []node, error)
}

var families = []Family{
	{
		Name: "mlp", Doc: "dense layers on a flat input",
		Settings: []Setting{
			{"inputs", 64, "features of a sample"}, {"hidden", []int{64, 32}, "width of each hidden layer"},
			{"classes", 10, "classes"}, {"activation", "relu", "relu, gelu, tanh or none"},
			{"dropout", 0.0, "probability behind each hidden layer"},
		},
		describe: mlp,
	},
	{
		Name: "convnet", Doc: "VGG-like: groups of 3x3 convolutions, each followed by a pool that halves the image, then " +
			"dense layers",
		Settings: []Setting{
			{"image", []int{1, 28, 28}, "channels, height, width"}, {"widths", []int{32, 64}, "channels of each group"},
			{"convs", 2, "convolutions in a group"}, {"dense", []int{256}, "width of each hidden dense layer"},
			{"classes", 10, "classes"}, {"batch_norm", false, "batch norm behind each convolution"},
			{"dropout", 0.0, "probability behind each hidden dense layer"},
		},
		describe: convnet,
	},
	{
		Name: "gpt", Doc: "decoder-only transformer over tokens",
		Settings: []Setting{
			{"layers", 8, "blocks"}, {"width", 256, "model width"}, {"heads", 8, "attention heads"},
			{"context", 128, "positions"}, {"vocabulary", 256, "tokens; 256 for bytes"},
			{"activation", "gelu", "gelu, or gelu_tanh: by a tanh, as GPT-2 has it"}, {"dropout", 0.0, "probability"},
			{"tied", false, "share the embedding with the head"},
		},
		describe: gpt,
	},
}

// Families lists the built-in models.
func Families() []Family { return slices.Clone(families) }

// Build makes a built-in model. Settings left out take their defaults.
func Build(name string, settings map[string]any) (*Model, error) {
	for _, f := range families {
		if f.Name != name {
			continue
		}
		attr, err := settle("model "+name, f.Settings, settings)
		if err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
		inputs, nodes, err := f.describe(&Layer{Attr: attr})
		if err != nil {
			return nil, fmt.Errorf("model: %s: %w", name, err)
		}
		return assemble(name, inputs, nodes)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("model: there is no model %q; there are %s, or give the path of a .yaml file", name,
		strings.Join(names, ", "))
}

// chain adds a layer that reads the one before it.
type chain struct {
	nodes []node
	last  string
}

func (c *chain) add(name, kind string, settings map[string]any) {
	c.nodes = append(c.nodes, node{Name: name, Kind: kind, From: []string{c.last}, Settings: settings})
	c.last = name
}

func (c *chain) loss() []node {
	return append(c.nodes, node{Name: "loss", Kind: "cross_entropy", From: []string{c.last, "target"}})
}

// maxRepeats bounds how often a family repeats a layer, so that a slip of the keyboard
// is an error and not a machine out of memory.
const maxRepeats = 4096

func repeats(name string, n int) error {
	if n > maxRepeats {
		return fmt.Errorf("%s is %d; %d is the most", name, n, maxRepeats)
	}
	return nil
}

func mlp(l *Layer) ([]Tensor, []node, error) {
	if err := probability(l.Number("dropout")); err != nil {
		return nil, nil, fmt.Errorf("dropout: %w", err)
	}
	if n := l.Int("inputs"); n < 1 || n > maxSample {
		return nil, nil, fmt.Errorf("inputs is %d; it is 1 to 2^30", n)
	}
	inputs := []Tensor{{Name: "input", Shape: []int{l.Int("inputs")}, DType: Float},
		{Name: "target", Shape: []int{}, DType: Int}}
	c := chain{last: "input"}
	for i, width := range l.Ints("hidden") {
		c.add(fmt.Sprintf("dense%d", i), "dense", map[string]any{"width": width, "activation": l.Word("activation")})
		if p := l.Number("dropout"); p > 0 {
			c.add(fmt.Sprintf("dropout%d", i), "dropout", map[string]any{"p": p})
		}
	}
	c.add("head", "dense", map[string]any{"width": l.Int("classes")})
	return inputs, c.loss(), nil
}

func convnet(l *Layer) ([]Tensor, []node, error) {
	image := l.Ints("image")
	if len(image) != 3 {
		return nil, nil, fmt.Errorf("image is %v; it is channels, height, width", image)
	}
	if slices.Min(image) < 1 || !fits(image, maxSample) {
		return nil, nil, fmt.Errorf("image is %v; each size is 1 at least, and 2^30 elements are the most", image)
	}
	if l.Int("convs") < 1 {
		return nil, nil, fmt.Errorf("convs is %d; it must be 1 at least", l.Int("convs"))
	}
	if err := repeats("convs", l.Int("convs")); err != nil {
		return nil, nil, err
	}
	if err := probability(l.Number("dropout")); err != nil {
		return nil, nil, fmt.Errorf("dropout: %w", err)
	}
	inputs := []Tensor{{Name: "input", Shape: image, DType: Float}, {Name: "target", Shape: []int{}, DType: Int}}
	c := chain{last: "input"}
	for i, width := range l.Ints("widths") {
		for j := range l.Int("convs") {
			c.add(fmt.Sprintf("conv%d.%d", i, j), "conv2d", map[string]any{"channels": width, "activation": "relu",
				"batch_norm": l.Flag("batch_norm")})
		}
		c.add(fmt.Sprintf("pool%d", i), "max_pool", nil)
	}
	c.add("flatten", "flatten", nil)
	for i, width := range l.Ints("dense") {
		c.add(fmt.Sprintf("dense%d", i), "dense", map[string]any{"width": width, "activation": "relu"})
		if p := l.Number("dropout"); p > 0 {
			c.add(fmt.Sprintf("dropout%d", i), "dropout", map[string]any{"p": p})
		}
	}
	c.add("head", "dense", map[string]any{"width": l.Int("classes")})
	return inputs, c.loss(), nil
}

func gpt(l *Layer) ([]Tensor, []node, error) {
	tokens := []int{l.Int("context")}
	inputs := []Tensor{{Name: "input", Shape: tokens, DType: Int}, {Name: "target", Shape: tokens, DType: Int}}
	p, depth := l.Number("dropout"), l.Int("layers")
	if err := repeats("layers", depth); err != nil {
		return nil, nil, err
	}
	if tokens[0] < 1 || tokens[0] > maxSample {
		return nil, nil, fmt.Errorf("context is %d; it is 1 to 2^30", tokens[0])
	}
	c := chain{last: "input"}
	c.add("embed", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("width"), "dropout": p})
	for i := range depth {
		c.add(fmt.Sprintf("block%d.attention", i), "attention", map[string]any{"heads": l.Int("heads"), "dropout": p,
			"depth": depth})
		c.add(fmt.Sprintf("block%d.mlp", i), "mlp", map[string]any{"activation": l.Word("activation"), "dropout": p,
			"depth": depth})
	}
	head := map[string]any{"vocabulary": l.Int("vocabulary")}
	if l.Flag("tied") {
		head["tied"] = "embed.weight"
	}
	c.add("head", "head", head)
	return inputs, c.loss(), nil
}
