package imported_test

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/nn"
)

// FuzzGraph changes the graph of an exported network. The changed graph must be refused in one line, or give a model
// that can be built.
func FuzzGraph(f *testing.F) {
	requests := torchtest.Main()
	var graphs, weights []string
	for _, r := range requests {
		if r.Name != "branches" && r.Name != "lstm" {
			continue
		}
		r.Rate = 0
		for _, a := range torchtest.Run(f, r) {
			graphs = append(graphs, member(f, a.Model, "graph.json"))
			weights = append(weights, member(f, a.Model, "weights.safetensors"))
		}
	}
	for i := range graphs {
		f.Add(graphs[i], i == 0)
		f.Add(strings.Replace(graphs[i], "aten::linear", "aten::matmul", 1), i == 0)
		f.Add(strings.ReplaceAll(graphs[i], `"tensor"`, `"value"`), i == 0)
		f.Add(strings.Replace(graphs[i], `"parameter"`, `"constant"`, 2), i == 0)
	}
	f.Fuzz(func(t *testing.T, graph string, first bool) {
		path := filepath.Join(t.TempDir(), "net.mr")
		of := weights[1]
		if first {
			of = weights[0]
		}
		write(t, path, map[string]string{"graph.json": graph, "weights.safetensors": of})
		m, err := imported.Load(path)
		if err != nil {
			if text := err.Error(); strings.Contains(text, "\n") || len(text) > 4000 {
				t.Errorf("%d characters: %.4000s", len(text), text)
			}
			return
		}
		if _, err := nn.Build(m); err != nil || m.ID() == "" {
			t.Errorf("%v", err)
		}
		for _, l := range m.Layers {
			for i, p := range l.Params {
				if p.Tied != "" {
					continue
				}
				if _, err := m.Weights.Tensor(l.ParamName(i)); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func member(f testing.TB, path, name string) string {
	f.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	r, err := z.Open(name)
	if err != nil {
		f.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path string, members map[string]string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z := zip.NewWriter(file)
	for _, name := range []string{"graph.json", "weights.safetensors"} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = io.WriteString(w, members[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}
