package race

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Workload is what every runner of a comparison trains: a gpt with its optimizer.
type Workload struct {
	Layers, Width, Heads, Context, Vocabulary int
	Batch                                     int    // rows of an optimizer step
	Optimizer                                 string // sgd or adamw
	LearningRate, Momentum, WeightDecay       float64
	Data                                      string // a text; "": random bytes
	Seed                                      uint64
}

// SixMillion is the workload of BENCHMARKS.md: 6.5 million parameters, 128 tokens per row, 32 rows per step.
func SixMillion() Workload {
	return Workload{
		Layers: 8, Width: 256, Heads: 8, Context: 128, Vocabulary: 256,
		Batch: 32, Optimizer: "sgd", LearningRate: 0.01, Seed: 1,
	}
}

func (w Workload) args() []string {
	return []string{
		"--layers", strconv.Itoa(w.Layers), "--width", strconv.Itoa(w.Width), "--heads", strconv.Itoa(w.Heads),
		"--context", strconv.Itoa(w.Context), "--vocabulary", strconv.Itoa(w.Vocabulary),
		"--batch", strconv.Itoa(w.Batch), "--optimizer", w.Optimizer, "--lr", number(w.LearningRate),
		"--momentum", number(w.Momentum), "--weight-decay", number(w.WeightDecay),
		"--data", w.Data, "--seed", strconv.FormatUint(w.Seed, 10),
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// mostMicroBatches is the largest number of micro-batches that is tried. With more of them, this model's matrices are
// too small for the BLAS, and that costs more time than a smaller bubble saves.
const mostMicroBatches = 16

// Peer is a way to train in PyTorch, with the settings that are worth trying.
type Peer struct {
	Name       string    // single, pipe, ddp or onef1b
	Doc        string    // a description for a table
	Candidates []Command // one for each setting
}

// Peers returns the rivals on two cores. `scripts` is the folder of [WriteScripts], `python` is the result of [Python],
// and `steps` is the number of optimizer steps in a visit. If 16 divides the batch, the numbers of micro-batches are
// 16, 8, 4, 2 and 1. If two processes or stages share the micro-batches, 1 is left out.
func (w Workload) Peers(python, scripts string, steps int) []Peer {
	peers := []Peer{
		{Name: "single", Doc: "PyTorch, one process"},
		{Name: "pipe", Doc: "PyTorch sync.Pipe, 2 stages"},
		{Name: "ddp", Doc: "PyTorch DistributedDataParallel, 2 processes"},
		{Name: "onef1b", Doc: "1F1B by hand over Gloo, 2 processes"},
	}
	add := func(peer int, label string, options ...string) {
		p := &peers[peer]
		args := append([]string{"-B", filepath.Join(scripts, p.Name+".py")}, w.args()...)
		p.Candidates = append(p.Candidates, Command{
			Name: fmt.Sprintf("%s (%s)", p.Name, label),
			Path: python, Args: append(args, options...), Steps: steps,
		})
	}
	for micro := max(1, w.Batch/mostMicroBatches); micro <= w.Batch; micro *= 2 {
		if w.Batch%micro != 0 {
			continue
		}
		size, count := strconv.Itoa(micro), w.Batch/micro
		for _, threads := range []string{"1", "2"} {
			label := fmt.Sprintf("micro-batch %d, threads %s", micro, threads)
			options := []string{"--micro", size, "--threads", threads}
			add(0, label, options...)
			if count%2 != 0 {
				continue
			}
			add(1, label, options...)
			add(2, label, options...)
			add(3, label, options...)
		}
		if count%2 == 0 {
			add(1, fmt.Sprintf("micro-batch %d, threads 1 forward and 2 backward", micro), "--micro", size,
				"--backward-threads", "2")
		}
		if count > 2 {
			add(3, fmt.Sprintf("micro-batch %d, threads 1, warm-up 3", micro), "--micro", size, "--warmup", "3")
		}
	}
	return peers
}
