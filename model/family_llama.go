package model

import "fmt"

func init() {
	families = append(families, Family{
		Name: "llama", Doc: "decoder-only transformer over tokens, after Llama",
		Settings: []Setting{
			repeats("layers", 8, "blocks"),
			count("width", 256, "model width"),
			count("heads", 8, "attention heads"),
			count("kv_heads", 4, "heads of keys and values; as many as heads, or a divisor"),
			count("hidden", 704, "hidden width of a block"),
			size("context", 128, "positions"),
			count("vocabulary", 256, "tokens; 256 for bytes"), theta,
			epsilon,
			flag("tied", false, "share the embedding with the head"),
		},
		Training: Training{Optimizer: "adamw", Rate: 1e-3, Warmup: 20},
		describe: llama,
	})
}

// llama is the network of Touvron et al. (LLaMA: Open and Efficient Foundation Language Models, 2023), with the
// grouped queries of Llama 2 and 3.
func llama(l *Layer) ([]Tensor, []node, error) {
	inputs := tokens(l)
	depth := l.Int("layers")
	c := chain{last: "input"}
	c.add("embed", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("width"),
		"positions": false})
	for i := range depth {
		c.add(fmt.Sprintf("block%d.attention", i), "rotary_attention", map[string]any{"heads": l.Int("heads"),
			"kv_heads": l.Int("kv_heads"), "theta": l.Number("theta"), "epsilon": l.Number("epsilon"), "depth": depth})
		c.add(fmt.Sprintf("block%d.mlp", i), "swiglu", map[string]any{"hidden": l.Int("hidden"),
			"epsilon": l.Number("epsilon"), "depth": depth})
	}
	c.add("norm", "rms_norm", map[string]any{"epsilon": l.Number("epsilon")})
	head := map[string]any{"vocabulary": l.Int("vocabulary"), "norm": false}
	if l.Flag("tied") {
		head["tied"] = "embed.weight"
	}
	c.add("head", "head", head)
	return inputs, c.loss(), nil
}
