package defaults

// Small are pairs that train within seconds.
var Small = []Pair{
	{Name: "mlp-digits", Model: "mlp", Data: "digits", Batch: 32, Steps: 300, Below: 0.15},
	{Name: "convnet-digits", Model: "convnet", Settings: []string{"image=1,8,8", "widths=8,16", "dense=32"},
		Data: "digits", Batch: 32, Steps: 200, Below: 1},
	{Name: "gpt-small-text", Model: "gpt", Settings: []string{"layers=2", "width=64", "heads=4", "context=64"},
		Data: Text, Batch: 16, Steps: 100, Below: 3},
	{Name: "llama-small-text", Model: "llama", Settings: []string{"layers=2", "width=64", "heads=4", "kv_heads=2",
		"hidden=176", "context=64"}, Data: Text, Batch: 16, Steps: 100, Below: 3},
	{Name: "lstm-small-text", Model: "lstm", Settings: []string{"layers=1", "width=64", "embedding=32", "context=64"},
		Data: Text, Batch: 16, Steps: 100, Below: 3.3},
}

// Large lists further pairs: models with default settings on data of the documentation, and small versions of the
// papers' models.
var Large = []Pair{
	{Name: "mlp-fashion-mnist", Model: "mlp", Settings: []string{"inputs=784"}, Data: "fashion-mnist", Batch: 64,
		Steps: 500, Below: 0.55},
	{Name: "convnet-fashion-mnist", Model: "convnet", Data: "fashion-mnist", Batch: 128, Steps: 100, Below: 0.6},
	{Name: "gpt-text", Model: "gpt", Data: Text, Batch: 8, Steps: 40, Below: 2.9},
	{Name: "llama-text", Model: "llama", Data: Text, Batch: 8, Steps: 40, Below: 2.9},
	{Name: "lstm-text", Model: "lstm", Data: Text, Batch: 8, Steps: 40, Below: 3.3},
	{Name: "awd-lm-small-text", Model: "awd-lm", Settings: []string{"layers=2", "width=64", "embedding=32",
		"vocabulary=256", "context=32"}, Data: Text, Batch: 16, Steps: 100, Below: 3.4},
	{Name: "s2vt-small-random", Model: "s2vt", Settings: []string{"features=32", "width=64", "embedding=32",
		"vocabulary=20", "context=10"}, Data: Random, Batch: 16, Steps: 150, Below: 2.5},
	{Name: "vgg16-random", Model: "vgg16", Settings: []string{"image=64", "width=8", "classes=10"}, Data: Random,
		Batch: 16, Steps: 40, Below: 2.3},
	{Name: "vgg19-random", Model: "vgg19", Settings: []string{"image=64", "width=8", "classes=10"}, Data: Random,
		Batch: 16, Steps: 40, Below: 2.35},
}
