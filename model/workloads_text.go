package model

import "fmt"

// The networks over text that the papers plan for, layer by layer.

func init() {
	families = append(families,
		gnmt("gnmt", 8, 32000), gnmt("gnmt-8", 8, 32000), gnmt("gnmt-16", 16, 36560),
		Family{
			Name: "awd-lm", Doc: "AWD-LSTM language model as PipeDream has it: six layers, 0.41 GB of parameters",
			// The paper gives only layers and bytes. The embedding and the change of widths follow Merity, Keskar and
			// Socher (2018). With 1600 units, the number of bytes is the paper's.
			Settings: []Setting{
				repeats("layers", 6, "LSTM layers"),
				count("width", 1600, "units of the inner layers"),
				count("embedding", 400, "width of the embedding"),
				count("vocabulary", 10000, "words"),
				size("context", 70, "positions"),
			},
			Training: Training{Optimizer: "adamw", Rate: 1e-3, Warmup: 20},
			describe: awd,
		},
		bert("bert", 24, 384), bert("bert-large", 24, 384), bert("bert-48", 48, 384),
		xlnet("xlnet-24", 24), xlnet("xlnet-36", 36))
}

// also(name, first, doc) returns the Doc of a family. It is `doc`, unless the papers use two names for the same
// network: then it says that the family is the same as `first`. Such names are gnmt-8 and bert-large.
func also(name, first, doc string) string {
	if name == "gnmt-8" || name == "bert-large" {
		return "the same as " + first + ", under its name in some papers"
	}
	return doc
}

// tokens returns the inputs of a network over text.
func tokens(l *Layer) []Tensor {
	shape := []int{l.Int("context")}
	return []Tensor{{Name: "input", Shape: shape, DType: Int}, {Name: "target", Shape: shape, DType: Int}}
}

// gnmt is Google's Neural Machine Translation (Wu et al., 2016) in the version of MLPerf 0.5, which PipeDream profiles.
// Half of the layers encode, the first one in both directions. The other half decode, and each of these reads the
// context of a single attention. Residuals begin at the third layer of each half. Sentences have 29 positions, the mean
// length in a batch, not the maximum of 50 (see the constants of package profile).
func gnmt(name string, layers, vocabulary int) Family {
	return Family{
		Name: name, Doc: also(name, "gnmt", fmt.Sprintf("translation by %d LSTM layers: half encode, half decode with "+
			"attention", layers)),
		Settings: []Setting{
			repeats("layers", layers, "LSTM layers, even"),
			count("width", 1024, "units"),
			count("vocabulary", vocabulary, "tokens"),
			size("context", 29, "positions of either sentence"),
		},
		describe: func(l *Layer) ([]Tensor, []node, error) {
			inputs := tokens(l)
			n, width := l.Int("layers"), l.Int("width")
			if n < 4 || n%2 != 0 {
				return nil, nil, fmt.Errorf("layers is %d; an even number from 4 on: half encode, half decode", n)
			}
			inputs = append(inputs, Tensor{Name: "previous", Shape: inputs[0].Shape, DType: Int})
			embedding := map[string]any{"vocabulary": l.Int("vocabulary"), "width": width, "positions": false}
			unit := map[string]any{"width": width}
			c := chain{last: "input"}
			layer := func(name string, i int, residual bool, more ...string) {
				from := c.last
				settings := unit
				if i == 0 && len(more) == 0 && name[0] == 'e' {
					settings = map[string]any{"width": width, "bidirectional": true}
				}
				c.nodes = append(c.nodes, node{Name: name, Kind: "lstm", From: append([]string{from}, more...), Settings: settings})
				c.last = name
				if residual {
					c.nodes = append(c.nodes, node{Name: name + ".add", Kind: "add", From: []string{name, from}})
					c.last = name + ".add"
				}
			}
			c.add("encoder.embedding", "embedding", embedding)
			for i := range n / 2 {
				layer(fmt.Sprintf("encoder%d", i+1), i, i >= 2)
			}
			memory := c.last
			c.last = "previous"
			c.add("decoder.embedding", "embedding", embedding)
			// The first decoder layer's own context comes from the previous step. Only the context's width matters
			// here.
			c.nodes = append(c.nodes, node{Name: "attention", Kind: "attention_to", From: []string{"decoder.embedding", memory}})
			for i := range n / 2 {
				layer(fmt.Sprintf("decoder%d", i+1), i, i >= 2, "attention")
			}
			c.add("classifier", "dense", map[string]any{"width": l.Int("vocabulary")})
			return inputs, c.loss(), nil
		},
	}
}

func awd(l *Layer) ([]Tensor, []node, error) {
	inputs := tokens(l)
	n := l.Int("layers")
	if n < 1 {
		return nil, nil, fmt.Errorf("layers is %d; it must be 1 at least", n)
	}
	c := chain{last: "input"}
	c.add("embed", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("embedding"),
		"positions": false})
	for i := range n {
		width := l.Int("width")
		if i == n-1 {
			width = l.Int("embedding")
		}
		c.add(fmt.Sprintf("lstm%d", i+1), "lstm", map[string]any{"width": width})
	}
	c.add("head", "head", map[string]any{"vocabulary": l.Int("vocabulary"), "tied": "embed.weight"})
	return inputs, c.loss(), nil
}

// bert is BERT (Devlin et al., 2019) with the head for questions on a text, and with any number of layers. The head
// gives two scores for each position, as in DAPPLE's training (SQuAD 2.0). 384 positions are usual for that task. Norms
// come before the branches here, not after them, which costs the same.
func bert(name string, layers, context int) Family {
	return Family{
		Name: name, Doc: also(name, "bert", fmt.Sprintf("transformer encoder of %d blocks with two scores for each position",
			layers)),
		Settings: []Setting{
			repeats("layers", layers, "blocks"),
			count("width", 1024, "model width"),
			count("heads", 16, "attention heads"),
			size("context", context, "positions"),
			count("vocabulary", 30522, "tokens"),
		},
		describe: func(l *Layer) ([]Tensor, []node, error) {
			inputs := tokens(l)
			c := chain{last: "input"}
			c.add("embed", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("width")})
			for i := range l.Int("layers") {
				c.add(fmt.Sprintf("block%d.attention", i+1), "encoder_attention", map[string]any{"heads": l.Int("heads")})
				c.add(fmt.Sprintf("block%d.mlp", i+1), "mlp", nil)
			}
			c.add("scores", "dense", map[string]any{"width": 2})
			return inputs, c.loss(), nil
		},
	}
}

// xlnet is the trunk of the large XLNet (Yang et al., 2019), with any number of layers.
func xlnet(name string, layers int) Family {
	return Family{
		Name: name, Doc: fmt.Sprintf("transformer of %d blocks with relative positions and a memory", layers),
		Settings: []Setting{
			repeats("layers", layers, "blocks"),
			count("width", 1024, "model width"),
			count("heads", 16, "attention heads"),
			size("context", 512, "positions"),
			amount("memory", 0, "positions remembered"),
			count("vocabulary", 32000, "tokens"),
		},
		describe: func(l *Layer) ([]Tensor, []node, error) {
			inputs := tokens(l)
			c := chain{last: "input"}
			c.add("embed", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("width"),
				"positions": false})
			for i := range l.Int("layers") {
				c.add(fmt.Sprintf("block%d.attention", i+1), "relative_attention", map[string]any{"heads": l.Int("heads"),
					"memory": l.Int("memory")})
				c.add(fmt.Sprintf("block%d.mlp", i+1), "mlp", nil)
			}
			c.add("scores", "dense", map[string]any{"width": 2})
			return inputs, c.loss(), nil
		},
	}
}
