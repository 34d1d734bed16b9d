package model

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// Family is a built-in model with settings.
type Family struct {
	Name     string
	Doc      string
	Settings []Setting
	Training Training
	describe func(l *Layer) ([]Tensor, []node, error)
}

// Training is the default way to train a family's models. With it, their loss falls from the first step on, if the data
// suit them. `millrace-lab defaults` shows how far it falls. Without an Optimizer there is no default.
type Training struct {
	Optimizer string  `json:"optimizer"` // sgd, adam or adamw
	Rate      float64 `json:"rate"`      // the constant rate after the warm-up
	// Warmup is the number of steps in which the rate rises to Rate. It does not depend on the total number of steps,
	// so a longer run repeats the steps of a shorter one.
	Warmup int `json:"warmup,omitempty"`
}

// String describes the training in words; "" if there is no default.
func (t Training) String() string {
	if t.Optimizer == "" {
		return ""
	}
	text := fmt.Sprintf("%s, learning rate %v", t.Optimizer, t.Rate)
	if t.Warmup > 0 {
		text += fmt.Sprintf(", warm-up %s", terminal.Count(t.Warmup, "step"))
	}
	return text
}

// TrainingOf returns the default training of a built-in model; the zero value for any other model.
func TrainingOf(name string) Training {
	for _, f := range families {
		if f.Name == name {
			return f.Training
		}
	}
	return Training{}
}

var families = []Family{
	{
		Name: "mlp", Doc: "dense layers on a flat input",
		Settings: []Setting{
			size("inputs", 64, "features of a sample"),
			counts("hidden", []int{64, 32}, "width of each hidden layer"),
			count("classes", 10, "classes"),
			choice("activation", "relu", "the activation", activations...),
			probability("dropout", 0.0, "probability behind each hidden layer"),
		},
		Training: Training{Optimizer: "adamw", Rate: 3e-3, Warmup: 20},
		describe: mlp,
	},
	{
		Name: "convnet", Doc: "VGG-like: groups of 3x3 convolutions, each followed by a pool that halves the image, then " +
			"dense layers",
		Settings: []Setting{
			counts("image", []int{1, 28, 28}, "channels, height, width"),
			counts("widths", []int{32, 64}, "channels of each group"),
			repeats("convs", 2, "convolutions in a group"),
			counts("dense", []int{256}, "width of each hidden dense layer"),
			count("classes", 10, "classes"),
			flag("batch_norm", false, "batch norm behind each convolution"),
			probability("dropout", 0.0, "probability behind each hidden dense layer"),
		},
		Training: Training{Optimizer: "adamw", Rate: 1e-3, Warmup: 20},
		describe: convnet,
	},
	{
		Name: "gpt", Doc: "decoder-only transformer over tokens",
		Settings: []Setting{
			repeats("layers", 8, "blocks"),
			count("width", 256, "model width"),
			count("heads", 8, "attention heads"),
			size("context", 128, "positions"),
			count("vocabulary", 256, "tokens; 256 for bytes"),
			choice("activation", "gelu", "the activation; gelu_tanh is by a tanh, as GPT-2 has it", "gelu", "gelu_tanh"),
			probability("dropout", 0.0, "probability"),
			flag("tied", false, "share the embedding with the head"),
		},
		Training: Training{Optimizer: "adamw", Rate: 1e-3, Warmup: 20},
		describe: gpt,
	},
}

// Families lists the built-in models.
func Families() []Family { return slices.Clone(families) }

// Names returns the names of the built-in models.
func Names() (names []string) {
	for _, f := range families {
		names = append(names, f.Name)
	}
	return names
}

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
	return nil, fmt.Errorf("model: %w", registry.None("model", name, Names(), "the path of a .yaml file",
		"of a PyTorch network"))
}

// chain adds layers, each of which reads the layer before it.
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

// maxRepeats limits how often a family repeats a layer. With this limit, a typing error leads to an error message, and
// does not use up the machine's memory.
const maxRepeats = 4096

func mlp(l *Layer) ([]Tensor, []node, error) {
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
	if !fits(image, maxSample) {
		return nil, nil, fmt.Errorf("image is %v; 2^30 elements are the most", image)
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
