package model

import "fmt"

func init() {
	families = append(families, Family{
		Name: "lstm", Doc: "language model of LSTM layers over tokens, after AWD-LSTM",
		Settings: []Setting{
			repeats("layers", 3, "LSTM layers"),
			count("width", 256, "units of a layer"),
			count("embedding", 128, "width of the embedding"),
			size("context", 128, "positions"),
			count("vocabulary", 256, "tokens; 256 for bytes"),
			probability("dropout", 0.0, "probability"),
			flag("tied", false, "share the embedding with the head; the last layer is then as wide"),
		},
		Training: Training{Optimizer: "adamw", Rate: 3e-3, Warmup: 20},
		describe: lstmModel,
	})
}

// lstmModel is the network of Merity, Keskar and Socher (Regularizing and Optimizing LSTM Language Models, ICLR 2018):
// embedding, LSTM layers of one width, softmax. The softmax may be tied to the embedding; the last layer then has the
// embedding's width. The paper's dropouts of the embedding (here of single elements) and of each layer's output are
// included. Weights are not dropped, and no state is carried from one piece of text to the next.
func lstmModel(l *Layer) ([]Tensor, []node, error) {
	inputs := tokens(l)
	n, p := l.Int("layers"), l.Number("dropout")
	c := chain{last: "input"}
	c.add("embed", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("embedding"),
		"positions": false, "dropout": p})
	head := map[string]any{"vocabulary": l.Int("vocabulary"), "norm": false}
	for i := range n {
		width := l.Int("width")
		if i == n-1 && l.Flag("tied") {
			width, head["tied"] = l.Int("embedding"), "embed.weight"
		}
		c.add(fmt.Sprintf("lstm%d", i), "lstm", map[string]any{"width": width, "dropout": p})
	}
	c.add("head", "head", head)
	return inputs, c.loss(), nil
}
