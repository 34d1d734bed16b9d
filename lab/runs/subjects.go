package runs

import (
	"fmt"
	"strings"
)

// sizes lists the micro-batch sizes of every profile: the sizes that runs use, and the sizes of the parts into which
// replicas split them.
const sizes = "1,2,3,4,6,8,12,24"

var subjects = map[string]subject{
	"mlp": {
		Model:     []string{"--model", "mlp", "--set", "hidden=24,20,16,12,12", "--set", "activation=tanh"},
		Optimizer: []string{"--optimizer", "sgd", "--momentum", "0.9"},
		Train:     []string{"--data", "digits", "--lr", "0.1"}, Layers: 7, Batch: 24, MicroBatches: 6,
	},
	"convnet": {
		Model: []string{"--model", "convnet", "--set", "image=1,8,8", "--set", "widths=4,6", "--set", "convs=1",
			"--set", "dense=16", "--set", "batch_norm=true", "--set", "dropout=0.2"},
		Optimizer: []string{"--optimizer", "sgd", "--momentum", "0.9", "--weight-decay", "0.01"},
		Train:     []string{"--data", "digits", "--lr", "0.05"}, Layers: 9, Batch: 12, MicroBatches: 3,
	},
	"gpt": {
		Model: []string{"--model", "gpt", "--set", "layers=2", "--set", "width=16", "--set", "heads=2", "--set", "context=12",
			"--set", "dropout=0.1", "--set", "tied=true"},
		Optimizer: []string{"--optimizer", "adamw"},
		Train:     []string{"--data", "text.txt", "--lr", "0.01", "--lr-warmup", "2"},
		Layers:    7, Batch: 12, MicroBatches: 6,
	},
	"lstm": {
		Model: []string{"--model", "lstm", "--set", "layers=2", "--set", "width=16", "--set", "embedding=12",
			"--set", "context=12", "--set", "dropout=0.1", "--set", "tied=true"},
		Optimizer: []string{"--optimizer", "adam"},
		Train:     []string{"--data", "text.txt", "--lr", "0.01", "--lr-warmup", "0"},
		Layers:    5, Batch: 12, MicroBatches: 4,
	},
	"skip": {
		Model:     []string{"--model", "skip.yaml"},
		Optimizer: []string{"--optimizer", "sgd"},
		Train:     []string{"--data", "digits", "--lr", "0.1"}, Layers: 6, Batch: 12, MicroBatches: 4,
	},
}

// hardware describes a device. With its costs, plans are the same everywhere and at any time.
const hardware = `name: lab
device_types:
  cpu: {memory: 16GiB, peak: 10GFLOPS, memory_bandwidth: 10GB/s}
device: cpu
levels:
  - {name: box, size: 8, bandwidth: 10GB/s, latency: 1us}
`

// skipping is a model with two tensors crossing the cuts before "down" and "sum".
const skipping = `name: skip
inputs:
  - {name: input, shape: [64], dtype: float}
  - {name: target, shape: [], dtype: int}
layers:
  - {name: first, kind: dense, width: 16, activation: tanh}
  - {name: up, kind: dense, width: 24, activation: relu}
  - {name: down, kind: dense, width: 16, activation: tanh}
  - {name: sum, kind: add, from: [first, down]}
  - {name: head, kind: dense, width: 10}
  - {name: loss, kind: cross_entropy, from: [head, target]}
`

// prose returns a text for language models: squares of numbers, so that there is something to learn.
func prose() string {
	var b strings.Builder
	for n := range 200 {
		fmt.Fprintf(&b, "the square of %d is %d.\n", n, n*n)
	}
	return b.String()
}

// inputs returns the files that runs read, by name.
func inputs() map[string]string {
	return map[string]string{"lab.yaml": hardware, "skip.yaml": skipping, "text.txt": prose()}
}
