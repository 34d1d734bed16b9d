package race_test

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/model"
)

// Every rival trains the model that millrace builds: from the same weights and rows, all reach the same loss.
func TestRivalsTrainOurModel(t *testing.T) {
	if _, err := torch.Open(); err != nil {
		t.Skip("libtorch is not installed: ", err) // there is nothing to compare with
	}
	python, version, err := race.Python(t.Context())
	if err != nil {
		t.Skip("PyTorch's Python side is not installed: ", err)
	}
	t.Log("PyTorch ", version)
	w := race.Workload{
		Layers: 2, Width: 16, Heads: 2, Context: 8, Vocabulary: 32,
		Batch: 4, Optimizer: "adamw", LearningRate: 0.01, WeightDecay: 0.1, Seed: 7,
	}
	ours, err := model.Build("gpt", map[string]any{
		"layers": w.Layers, "width": w.Width, "heads": w.Heads, "context": w.Context, "vocabulary": w.Vocabulary,
	})
	if err != nil {
		t.Fatal(err)
	}
	scripts := t.TempDir()
	if err := race.WriteScripts(scripts); err != nil {
		t.Fatal(err)
	}
	losses := map[string]float64{}
	for _, p := range w.Peers(python, scripts, 3) {
		c := p.Candidates[0]
		r, err := race.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		work, err := r.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if got := r.Description.Parameters; got != ours.ParameterElements() {
			t.Errorf("%s has %d parameters, millrace's model %d", p.Name, got, ours.ParameterElements())
		}
		if work.Samples != 3*w.Batch || r.Description.Name != p.Name {
			t.Errorf("%s: %+v trained %d rows in 3 steps of %d", p.Name, r.Description, work.Samples, w.Batch)
		}
		losses[p.Name] = r.Loss
	}
	for _, name := range []string{"pipe", "ddp", "onef1b"} {
		if math.Abs(losses[name]-losses["single"]) > 1e-5 {
			t.Errorf("%s ends at loss %v, single at %v", name, losses[name], losses["single"])
		}
	}
}

func TestSixMillionIsThatOfTheModel(t *testing.T) {
	w := race.SixMillion()
	m, err := model.Build("gpt", map[string]any{
		"layers": w.Layers, "width": w.Width, "heads": w.Heads, "context": w.Context, "vocabulary": w.Vocabulary,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.ParameterElements(); got != 6_482_432 {
		t.Errorf("%d parameters, want 6,482,432", got)
	}
}

func TestCandidates(t *testing.T) {
	counts := map[string]int{}
	for _, p := range race.SixMillion().Peers("python3", "dir", 2) {
		counts[p.Name] = len(p.Candidates)
		for _, c := range p.Candidates {
			if !strings.Contains(strings.Join(c.Args, " "), "dir/"+p.Name+".py --layers 8 ") || c.Steps != 2 {
				t.Errorf("%+v", c)
			}
		}
	}
	// The micro-batch sizes are 2, 4, 8, 16 and, in one process, 32, each with 1 and 2 threads. Pipe also varies the
	// threads of the backward pass. 1F1B also tries a longer warm-up for sizes up to 8.
	want := map[string]int{"single": 10, "pipe": 12, "ddp": 8, "onef1b": 11}
	for name, n := range want {
		if counts[name] != n {
			t.Errorf("%s has %d candidates, want %d", name, counts[name], n)
		}
	}
}
