package slow

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/millrace-ml/millrace/model"
)

// Workload is a model with its rows per step. Its data are random samples of the right shape.
type Workload struct {
	Name     string
	Doc      string
	Family   string
	Settings map[string]any
	Rows     int // rows in a step, per host
	// Pieces is the number of micro-batches into which the rival Accumulated divides a host's rows.
	Pieces int
}

// Workloads are the models that are trained.
var Workloads = []Workload{
	{Name: "vgg16-quarter",
		Doc:    "VGG-16 with convolutions of a quarter of the width, dense 4096-4096, on images of 64 x 64",
		Family: "vgg16", Settings: map[string]any{"image": 64, "width": 16}, Rows: 32, Pieces: 4},
	{Name: "awd-half", Doc: "AWD-LSTM's layers at half of the width: 10,000 words, three LSTM layers, tied decoder",
		Family: "lstm", Settings: map[string]any{"layers": 3, "width": 576, "embedding": 200, "context": 35,
			"vocabulary": 10000, "tied": true}, Rows: 16, Pieces: 4},
	{Name: "gpt", Doc: "the gpt of BENCHMARKS.md, 6.5 million parameters, 128 tokens a row",
		Family: "gpt", Settings: map[string]any{"layers": 8, "width": 256, "heads": 8, "context": 128,
			"vocabulary": 256}, Rows: 16, Pieces: 4},
}

// FindWorkload returns the workload with a name.
func FindWorkload(name string) (Workload, error) {
	var names []string
	for _, w := range Workloads {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Workload{}, fmt.Errorf("model %q; the workloads are %s", name, strings.Join(names, ", "))
}

// Describe writes the model as JSON for rivals that build it layer by layer.
func Describe(path string, m *model.Model) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("slow: describing %s: %w", m.Name, err)
	}
	return nil
}
