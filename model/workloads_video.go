package model

// The network over videos that PipeDream plans for.

func init() {
	families = append(families, Family{
		Name: "s2vt", Doc: "captions of videos: two LSTMs, one over frames, one over its output and words",
		// This model is here for a row of PipeDream's Table 1 and two of its figures. PipeDream gives none of its
		// sizes, only 80 samples for each device, MSVD, and 2-1-1 on four devices (sections 5.1 and 5.2, Table 1). The
		// sizes here are those of Venugopalan et al., Sequence to Sequence - Video to Text (2015), from memory, not
		// from its text. A frame has 4,096 features. Embeddings of frames and words are 500 wide. Two LSTMs are
		// unrolled over 80 steps, as in public implementations. They have 1,000 units; some implementations have 500.
		// The 12,594 words have no second source. All five sizes are settings.
		Settings: []Setting{
			size("features", 4096, "features of a frame"),
			count("width", 1000, "units"),
			count("embedding", 500, "width of the embeddings"),
			count("vocabulary", 12594, "words"),
			size("context", 80, "steps: frames, then words"),
		},
		Training: Training{Optimizer: "adamw", Rate: 1e-3, Warmup: 20},
		describe: s2vt,
	})
}

// s2vt first reads frames and then writes words. Both LSTMs run over all steps. They get empty words while frames are
// read, and empty frames while words are written.
func s2vt(l *Layer) ([]Tensor, []node, error) {
	inputs := tokens(l)
	words := inputs[0]
	words.Name = "previous"
	inputs[0].Shape, inputs[0].DType = []int{l.Int("context"), l.Int("features")}, Float
	inputs = append(inputs, words)
	c := chain{last: "input"}
	c.add("frames", "dense", map[string]any{"width": l.Int("embedding")})
	c.add("lstm1", "lstm", map[string]any{"width": l.Int("width")})
	c.last = "previous"
	c.add("words", "embedding", map[string]any{"vocabulary": l.Int("vocabulary"), "width": l.Int("embedding"),
		"positions": false})
	c.nodes = append(c.nodes, node{Name: "lstm2", Kind: "lstm", From: []string{"lstm1", "words"},
		Settings: map[string]any{"width": l.Int("width")}})
	c.last = "lstm2"
	c.add("classifier", "dense", map[string]any{"width": l.Int("vocabulary")})
	return inputs, c.loss(), nil
}
