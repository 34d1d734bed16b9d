package imported_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/stage"
)

// A file is refused if it records a shape that differs from the one that an operator returns. The error is returned
// when the file is opened, or when the operator runs. The test runs such files on one stage and with a cut, with the
// example's number of rows and with others.
func TestShapesThatAreNotAsRecorded(t *testing.T) {
	a := exported(t, torchtest.Request{Name: "unet", File: "images.py"})[0]
	batch, dev := torchtest.Read(t, a.Numbers), device(t)
	text, weights := member(t, a.Model, "graph.json"), member(t, a.Model, "weights.safetensors")
	var count struct {
		Nodes []struct {
			Out []map[string]any `json:"out"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(text), &count); err != nil {
		t.Fatal(err)
	}
	opened, computed := 0, 0
	for i, n := range count.Nodes {
		if i%7 > 0 || len(n.Out) != 1 || n.Out[0]["shape"] == nil || len(n.Out[0]["shape"].([]any)) == 0 {
			continue
		}
		path := filepath.Join(t.TempDir(), "lies.mr")
		write(t, path, map[string]string{"graph.json": lying(t, text, i), "weights.safetensors": weights})
		for _, fuse := range []string{imported.Off, imported.Fused} {
			n, err := imported.Open(path, imported.Options{Fuse: fuse})
			if err != nil {
				opened++
				continue
			}
			for _, cuts := range [][]int{nil, {len(n.Model.Layers) / 2}} {
				for _, rows := range []string{"a", "b"} {
					l := newLine(t, dev, n.Model, 0, cuts...)
					err := l.tried(batch, rows)
					l.close()
					if !errors.As(err, new(*nn.ShapeError)) && (rows == "a" || err == nil) {
						t.Errorf("node %d, fuse %s, cuts %v, batch %s: %v", i, fuse, cuts, rows, err)
					}
					computed++
				}
			}
		}
	}
	t.Logf("%d refused when opened, %d when computed", opened, computed)
	if computed < 8 {
		t.Errorf("%d of them came to be computed", computed)
	}
}

// lying returns a graph in which a node's recorded shape has one element too many in the last dimension.
func lying(t *testing.T, text string, node int) string {
	t.Helper()
	var graph map[string]any
	if err := json.Unmarshal([]byte(text), &graph); err != nil {
		t.Fatal(err)
	}
	out := graph["nodes"].([]any)[node].(map[string]any)["out"].([]any)[0].(map[string]any)
	for _, key := range []string{"shape", "double"} {
		if shape, is := out[key].([]any); is {
			shape[len(shape)-1] = shape[len(shape)-1].(float64) + 1
		}
	}
	changed, err := json.Marshal(graph)
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// tried runs a batch forward and returns the error.
func (l *line) tried(batch map[string]torchtest.Tensor, prefix string) error {
	l.t.Helper()
	var out stage.Tensors
	for _, s := range l.stages {
		given := l.fed(s, batch, prefix)
		for v, x := range out {
			given[v] = x
		}
		var err error
		if out, _, err = s.Forward(stage.Micro{Rows: l.rows(batch, prefix)}, given); err != nil {
			return err
		}
	}
	return nil
}
