package checkpoint

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// inFiles writes a checkpoint with these files. Its model has a parameter of 4 x 2 numbers, and a buffer whose name,
// b[0:2], looks like the name under which some rows of a parameter are saved.
func inFiles(t *testing.T, files ...[]Tensor) string {
	t.Helper()
	s := &Store{Dir: t.TempDir()}
	draft := DraftName(4, 1)
	at := filepath.Join(s.Dir, draft)
	if err := MakeDraft(at); err != nil {
		t.Fatal(err)
	}
	m := manifest(4)
	m.Float, m.Parameters = "F32", []Parameter{{Name: "a.weight", Shape: []int64{4, 2}},
		{Name: "b[0:2]", Shape: []int64{1}, Buffer: true}}
	m.Optimizer.Kind, m.Optimizer.Momentum = "sgd", 0.9
	var all []File
	for i, tensors := range files {
		f, err := WriteFile(at, []string{"stage-0", "stage-1", "stage-2"}[i], tensors)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	text, err := Seal(m, all)
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.Commit(draft, text)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// numbers returns a tensor of rows with two numbers each, counting from `first`.
func numbers(name string, first float32, rows int64) Tensor {
	var x []float32
	for range 2 * rows {
		x = append(x, first)
		first++
	}
	return Tensor{Name: name, DType: engine.Float32, Shape: []int64{rows, 2}, Data: engine.Bytes(x)}
}

// Rows that several stages have saved are one tensor when it is read, exported or shown. The order of files does not
// matter. A tensor whose name only looks like a name for rows is not part of another tensor.
func TestRowsAreOneTensor(t *testing.T) {
	like := Tensor{Name: "b[0:2]", DType: engine.Float32, Shape: []int64{1}, Data: engine.Bytes([]float32{9})}
	path := inFiles(t,
		[]Tensor{numbers("a.weight[1:4]", 2, 3), numbers("a.weight[1:4]#momentum", 12, 3), like},
		[]Tensor{numbers("a.weight[0:1]", 0, 1), numbers("a.weight[0:1]#momentum", 10, 1)})
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if names := c.Names(); !slices.Equal(names, []string{"a.weight", "a.weight#momentum", "b[0:2]"}) {
		t.Error(names)
	}
	var file bytes.Buffer
	if err := c.Export(&file, true); err != nil {
		t.Fatal(err)
	}
	x, err := ReadIndex(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for name, first := range map[string]float32{"a.weight": 0, "a.weight#momentum": 10} {
		want := numbers(name, first, 4)
		exported, err := x.Read(bytes.NewReader(file.Bytes()), name)
		got, errTensor := c.Tensor(name)
		for _, is := range []Tensor{got, exported} {
			if err != nil || errTensor != nil || !slices.Equal(is.Shape, want.Shape) || !bytes.Equal(is.Data, want.Data) {
				t.Errorf("%s: %v, %v, %+v", name, err, errTensor, is)
			}
		}
	}
	if got, err := c.Tensor("b[0:2]"); err != nil || !bytes.Equal(got.Data, like.Data) {
		t.Error(got, err)
	}
	seen, err := Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := seen[0].Verify(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// Rows that are missing, duplicate or of another shape are reported, and refused on reading or opening.
func TestRowsThatDoNotMakeATensor(t *testing.T) {
	first, rest := numbers("a.weight[0:1]", 0, 1), numbers("a.weight[1:4]", 2, 3)
	for what, x := range map[string]struct {
		tensors []Tensor
		says    string // what Verify reports
		opens   string // Open's error; empty if it succeeds
		reads   string // Tensor's error
	}{
		"the last are missing": {[]Tensor{first}, "tensor a.weight: rows from 1 on are in no file; the model has [4 2]", "",
			"rows from 1 on are in no file"},
		"the first are missing": {[]Tensor{rest}, "tensor a.weight: rows from 0 on are in no file; the model has [4 2]", "",
			"rows from 0 on are in no file"},
		"some are twice": {[]Tensor{first, rest, numbers("a.weight[2:3]", 0, 1)},
			"tensor a.weight: a.weight[1:4] and a.weight[2:3] have the same rows", `tensor "a.weight[2:3]" is in`, ""},
		"the whole is there too": {[]Tensor{numbers("a.weight", 0, 4), first},
			"tensor a.weight is there, and its rows as a.weight[0:1]", `tensor "a.weight[0:1]" is in`, ""},
		"they are fewer than they say": {[]Tensor{first, numbers("a.weight[1:4]", 2, 2)},
			"tensor a.weight[1:4] is F32[2 2]; the model has [4 2]", "", "a.weight[1:4] is F32[2 2]; the model has F32[4 2]"},
	} {
		path := inFiles(t, x.tensors)
		seen, err := Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := seen[0].Verify(); !slices.Contains(wrong, x.says) {
			t.Errorf("%s: %q", what, wrong)
		}
		c, err := Open(path)
		if x.opens != "" {
			if err == nil || !strings.Contains(err.Error(), x.opens) {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Tensor("a.weight"); err == nil || !strings.Contains(err.Error(), x.reads) {
			t.Errorf("%s: %v", what, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
