package model

import "fmt"

func init() {
	families = append(families, Family{
		Name: "lstm", Doc: "language model of LSTM layers over tokens, after AWD-LSTM",
		Settings: []Setting{
			{"layers", 3, "LSTM layers"}, {"width", 256, "units of a layer"}, {"embedding", 128, "width of the embedding"},
			{"context", 128, "positions"}, {"vocabulary", 256, "tokens; 256 for bytes"}, {"dropout", 0.0, "probability"},
			{"tied", false, "share the embedding with the head; the last LSTM layer is then as wide as the embedding"},
		},
		describe: lstmModel,
	})
}

// lstmModel is the network of Merity, Keskar and Socher (Regularizing and Optimizing LSTM
// Language Models, ICLR 2018): embedding, LSTM layers of one width, softmax, on request tied
// to the embedding, for which the last layer takes its width. Of its dropouts there are those of
// the embedding (here of single elements) and of each layer's output; weights are not
// dropped, and no state is carried from one piece of text to the next.
func lstmModel(l *Layer) ([]Tensor, []node, error) {
	inputs, err := tokens(l)
	if err != nil {
		return nil, nil, err
	}
	n, p := l.Int("layers"), l.Number("dropout")
	if n < 1 {
		return nil, nil, fmt.Errorf("layers is %d; it must be 1 at least", n)
	}
	if err := probability(p); err != nil {
		return nil, nil, fmt.Errorf("dropout: %w", err)
	}
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
