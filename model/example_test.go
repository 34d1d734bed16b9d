package model_test

import (
	"fmt"

	"github.com/millrace-ml/millrace/model"
)

// A built-in model is built from its settings, and has its layers and parameters.
func ExampleBuild() {
	m, err := model.Build("gpt", map[string]any{"layers": 2, "context": 64})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range m.Layers {
		fmt.Println(l.Name, l.Kind)
	}
	fmt.Println(m.ParameterElements(), "parameters")
	// Output:
	// embed embedding
	// block0.attention attention
	// block0.mlp mlp
	// block1.attention attention
	// block1.mlp mlp
	// head head
	// loss cross_entropy
	// 1727488 parameters
}
