package measured

import (
	"fmt"

	"github.com/millrace-ml/millrace/model"
)

// Transformer is the shape of a decoder. A built-in family builds a model from it.
type Transformer struct {
	Layers, Hidden, Heads, KV, FFN, Positions, Vocabulary int // KV and FFN are 0 for a GPT
	Tied, Dropout                                         bool
}

// Settings returns the built-in family and its settings.
func (t Transformer) Settings() (family string, set map[string]any) {
	set = map[string]any{"layers": t.Layers, "width": t.Hidden, "heads": t.Heads, "context": t.Positions,
		"vocabulary": t.Vocabulary, "tied": t.Tied}
	if t.FFN > 0 {
		set["hidden"], set["kv_heads"] = t.FFN, t.KV
		return "llama", set
	}
	if t.Dropout {
		set["dropout"] = 0.1
	}
	return "gpt", set
}

// Build builds the model.
func (t Transformer) Build() (*model.Model, error) {
	family, set := t.Settings()
	m, err := model.Build(family, set)
	if err != nil {
		return nil, fmt.Errorf("measured: %w", err)
	}
	return m, nil
}

// String returns a short description of the shape.
func (t Transformer) String() string {
	family, _ := t.Settings()
	return fmt.Sprintf("%s of %d x %d", family, t.Layers, t.Hidden)
}
