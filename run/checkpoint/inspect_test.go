package checkpoint

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage/optim"
)

// described returns the manifest of a model with two layers, with momentum in the optimizer.
func described(pipelines int) Manifest {
	m := manifest(4)
	m.Float, m.Optimizer = "F32", optim.Settings{Kind: optim.SGD, Momentum: 0.9}
	m.Parameters = []Parameter{{Name: "layer0.weight", Shape: []int64{3}}, {Name: "layer1.mean", Shape: []int64{2},
		Buffer: true}}
	if pipelines > 1 {
		m.Plan = &plan.Plan{Elastic: &plan.Elastic{Pipelines: pipelines}}
		m.Samples *= int64(pipelines)
	}
	return m
}

func tensor(name string, d engine.DType, shape ...int64) Tensor {
	size, _ := byteSize(d, shape)
	return Tensor{Name: name, DType: d, Shape: shape, Data: bytes.Repeat([]byte{7}, int(size))}
}

// Verify names every tensor that is missing, duplicate, unknown, or of another type or shape.
func TestVerifyHoldsTensorsAgainstTheModel(t *testing.T) {
	f32 := engine.Float32
	whole := []Tensor{tensor("layer0.weight", f32, 3), tensor("layer0.weight#momentum", f32, 3),
		tensor("layer1.mean", f32, 2)}
	pipelines := slices.Clone(whole[:1])
	pipelines = append(pipelines, whole[2])
	for p := range 2 {
		for _, x := range whole {
			pipelines = append(pipelines, tensor(PipelinePrefix(p)+x.Name, f32, x.Shape...))
		}
	}
	for name, c := range map[string]struct {
		files     [][]Tensor
		pipelines int
		says      []string
	}{
		"whole":          {[][]Tensor{whole[:1], whole[1:]}, 1, nil},
		"two pipelines":  {[][]Tensor{pipelines}, 2, nil},
		"one is missing": {[][]Tensor{whole[:2]}, 1, []string{"tensor layer1.mean is in no file"}},
		"one is twice": {[][]Tensor{whole, whole[:1]}, 1,
			[]string{"tensor layer0.weight is in stage-0.safetensors and in stage-1.safetensors"}},
		"one is unknown": {[][]Tensor{append(slices.Clone(whole), tensor("x", f32, 1))}, 1,
			[]string{"tensor x is of no parameter of the model"}},
		"another type": {[][]Tensor{{whole[0], whole[1], tensor("layer1.mean", engine.Float64, 2)}}, 1,
			[]string{"tensor layer1.mean is F64[2]; the model has F32[2]"}},
		"another shape": {[][]Tensor{{tensor("layer0.weight", f32, 1, 3), whole[1], whole[2]}}, 1,
			[]string{"tensor layer0.weight is F32[1 3]; the model has F32[3]"}},
		"a state is missing": {[][]Tensor{{whole[0], whole[2]}}, 1,
			[]string{"tensor layer0.weight#momentum is in no file"}},
		"a pipeline is missing": {[][]Tensor{pipelines[:5]}, 2, []string{"tensor pipeline-1/layer0.weight is in no file",
			"tensor pipeline-1/layer0.weight#momentum is in no file", "tensor pipeline-1/layer1.mean is in no file"}},
		"more pipelines than there can be": {[][]Tensor{whole}, 1 << 40,
			[]string{"1099511627776 pipelines side by side, and there are 3 tensors"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			draft := DraftName(4, 1)
			at := filepath.Join(s.Dir, draft)
			if err := MakeDraft(at); err != nil {
				t.Fatal(err)
			}
			var files []File
			for i, tensors := range c.files {
				f, err := WriteFile(at, fmt.Sprintf("stage-%d.safetensors", i), tensors)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			text, err := Seal(described(c.pipelines), files)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(draft, text); err != nil {
				t.Fatal(err)
			}
			seen, err := Inspect(s.Dir)
			if err != nil || len(seen) != 1 {
				t.Fatal(seen, err)
			}
			got := seen[0].Verify()
			if len(got) != len(c.says) {
				t.Fatalf("%q; want %q", got, c.says)
			}
			for i := range got {
				if !strings.Contains(got[i], c.says[i]) {
					t.Errorf("%q; want something about %q", got[i], c.says[i])
				}
			}
		})
	}
}

func TestParametersThatNoModelHasAreRefused(t *testing.T) {
	for says, list := range map[string][]Parameter{
		`parameters[1].name is "a"`:   {{Name: "a"}, {Name: "a"}},
		`parameters[0].name is ""`:    {{}},
		"has a negative dimension":    {{Name: "a", Shape: []int64{2, -1}}},
		"more bytes than can be coun": {{Name: "a", Shape: []int64{1 << 40, 1 << 40}}},
	} {
		m := described(1)
		m.Parameters = list
		if _, err := Seal(m, []File{{Name: "f"}}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; want something about %q", list, err, says)
		}
	}
}
