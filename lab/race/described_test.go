package race_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/model"
)

// The model that a rival builds has as many parameters as the described model. Its loss before the first step is that
// of an untrained model.
func TestADescribedModelIsOurs(t *testing.T) {
	if _, err := torch.Open(); err != nil {
		t.Skip("libtorch is not installed: ", err) // there is nothing to compare with
	}
	python, _, err := race.Python(t.Context())
	if err != nil {
		t.Skip("PyTorch's Python side is not installed: ", err)
	}
	dir := t.TempDir()
	if err := race.WriteScripts(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family   string
		settings map[string]any
		classes  float64
		ranks    int
	}{
		{"convnet", map[string]any{"image": []int{3, 8, 8}, "widths": []int{4, 6}, "dense": []int{12}, "dropout": 0.5}, 10,
			1},
		{"lstm", map[string]any{"width": 12, "embedding": 8, "context": 5, "vocabulary": 30, "tied": true}, 30, 2},
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 20}, 20, 1},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			m, err := model.Build(c.family, c.settings)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, c.family+".json")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			of := func(rank string) race.Command {
				return race.Command{Name: c.family, Path: python, Steps: 2,
					Args: []string{"-B", filepath.Join(dir, "ddp_links.py"), "--model", file, "--batch", "8", "--micro", "2",
						"--lr", "1e-6", "--alone", "1"},
					Env: append(os.Environ(), "RIVAL_RANK="+rank, fmt.Sprintf("RIVAL_SIZE=%d", c.ranks),
						"RIVAL_MEETING="+file+".meeting",
						"GLOO_SOCKET_IFNAME=lo")}
			}
			first := of("0")
			if c.ranks > 1 {
				first.Beside = []race.Command{of("1")}
			}
			r, err := race.Start(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			w, err := r.Step(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if d := r.Description; d.Parameters != m.ParameterElements() || !(d.ComputeS > 0 && d.ReduceS > 0) {
				t.Errorf("it describes itself as %+v; millrace's model has %d parameters", d, m.ParameterElements())
			}
			if want := math.Log(c.classes); w.Samples != 16 || math.Abs(r.Loss-want) > 0.15*want {
				t.Errorf("%d rows to a loss of %v; 2 steps of 8 rows, and about %v where nothing is known", w.Samples, r.Loss, want)
			}
		})
	}
}
