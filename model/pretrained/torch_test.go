package pretrained_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/pretrained"
	"github.com/millrace-ml/millrace/nn"
)

// gpt2 returns the settings of the GPT-2 in testdata/published.py, changed by the settings in `other`.
func gpt2(other map[string]any) map[string]any {
	s := map[string]any{"layers": 2, "width": 32, "heads": 4, "context": 10, "vocabulary": 61, "tied": true,
		"activation": "gelu_tanh"}
	for name, v := range other {
		s[name] = v
	}
	return s
}

func llama(other map[string]any) map[string]any {
	s := map[string]any{"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 56, "context": 10,
		"vocabulary": 61, "theta": 5e5, "epsilon": 1e-6}
	for name, v := range other {
		s[name] = v
	}
	return s
}

func build(t testing.TB, family string, settings map[string]any) *model.Model {
	t.Helper()
	m, err := model.Build(family, settings)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// published has PyTorch write its networks, and returns their folder.
func published(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	script := "testdata/published.py"
	if _, err := os.ReadFile(script); err != nil { // makes the go command's test cache depend on the file
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/usr/bin/python3", "-B", script, folder)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("/usr/bin/python3 with torch, which make setup-pytorch installs: %v\n%s", err, out)
	}
	return folder
}

// A network with published weights gives PyTorch's logits and loss within 1e-5, and each gradient within 1e-4 of its
// norm.
func TestPublishedWeightsAreTheirNetworks(t *testing.T) {
	folder := published(t)
	for _, c := range []struct {
		name, at, family string
		settings         map[string]any
	}{
		{"gpt2", "gpt2.safetensors", "gpt", gpt2(nil)},
		{"gpt2-f16", "gpt2-f16.safetensors", "gpt", gpt2(nil)},
		{"gpt2-head", "gpt2-head.safetensors", "gpt", gpt2(map[string]any{"tied": false})},
		{"llama", "llama.safetensors", "llama", llama(nil)},
		{"llama", "llama-parts", "llama", llama(nil)},
		{"llama", "llama-parts/model.safetensors.index.json", "llama", llama(nil)},
		{"llama-bf16", "llama-bf16.safetensors", "llama", llama(nil)},
		{"llama-tied", "llama-tied.safetensors", "llama", llama(map[string]any{"tied": true})},
	} {
		t.Run(c.at, func(t *testing.T) {
			m := build(t, c.family, c.settings)
			w, err := pretrained.Open(filepath.Join(folder, c.at), m)
			if err != nil {
				t.Fatal(err)
			}
			gradients, err := pretrained.Open(filepath.Join(folder, c.name+"-grad.safetensors"), m)
			if err != nil {
				t.Fatal(err)
			}
			want := torchtest.Read(t, filepath.Join(folder, c.name+"-out.safetensors"))
			logits, loss, got := pass(t, m, w, want)
			if far := furthest(logits, floats(want["logits"].Data)); !(far <= 1e-5) {
				t.Errorf("a logit is %.2g away from PyTorch's", far)
			}
			if far := math.Abs(loss - floats(want["loss"].Data)[0]); !(far <= 1e-5) {
				t.Errorf("the loss is %.2g away from PyTorch's", far)
			}
			if len(got) < 15 {
				t.Errorf("%d gradients", len(got))
			}
			for name, g := range got {
				v, err := gradients.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				if far := apart(g, floats(v.Data)); !(far <= 1e-4) {
					t.Errorf("the gradient of %s is %.2g away from PyTorch's", name, far)
				}
			}
		})
	}
}

func floats(data []byte) []float64 {
	var all []float64
	for _, x := range engine.Numbers[float32](data) {
		all = append(all, float64(x))
	}
	return all
}

// furthest returns the largest difference of two elements, divided by the largest absolute value in b.
func furthest(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.NaN()
	}
	var far, most float64
	for i := range b {
		far, most = max(far, math.Abs(a[i]-b[i])), max(most, math.Abs(b[i]))
	}
	return far / most
}

// apart returns ||a - b|| / ||b||, where || || is the Euclidean norm.
func apart(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.NaN()
	}
	var diff, norm float64
	for i := range b {
		diff, norm = diff+(a[i]-b[i])*(a[i]-b[i]), norm+b[i]*b[i]
	}
	return math.Sqrt(diff / norm)
}

// device opens libtorch on the test's own thread.
func device(t *testing.T) engine.Device {
	t.Helper()
	e, err := torch.Open()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pass computes the layers in order with the given weights. It returns logits, loss, and the gradients by full name.
func pass(t *testing.T, m *model.Model, w model.Weights, batch map[string]torchtest.Tensor) (logits []float64,
	loss float64, gradients map[string][]float64) {
	t.Helper()
	d := device(t)
	mark := d.Begin()
	defer func() {
		d.End(mark)
		if n := d.Close(); n != 0 {
			t.Errorf("%d tensors were never freed", n)
		}
	}()
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	have, leaves := map[string]nn.Bundle{}, map[string]engine.Tensor{}
	for _, in := range m.Inputs {
		x, err := d.FromBytes(engine.Int64, batch[in.Name].Shape, batch[in.Name].Data)
		if err != nil {
			t.Fatal(err)
		}
		have[in.Name] = nn.Bundle{{Name: in.Name, Tensor: x}}
	}
	for i := range m.Layers {
		l := &m.Layers[i]
		ctx := &nn.Context{Device: d, Training: true, Layer: i, Rows: int(batch["input"].Shape[0])}
		for k, p := range l.Params {
			name := l.ParamName(k)
			if p.Tied != "" {
				name = p.Tied
			}
			if leaves[name] == nil {
				leaves[name] = leaf(t, d, w, name, p.Shape)
			}
			ctx.Params = append(ctx.Params, leaves[name])
		}
		var in nn.Bundle
		for _, from := range l.From {
			in = append(in, have[from]...)
		}
		if have[l.Name], err = layers[i].Forward(ctx, in); err != nil {
			t.Fatalf("layer %s: %v", l.Name, err)
		}
	}
	end := have["loss"][0].Tensor
	if err := d.Backward([]engine.Tensor{end}, []engine.Tensor{nil}); err != nil {
		t.Fatal(err)
	}
	gradients = map[string][]float64{}
	for name, x := range leaves {
		g, err := d.Grad(x)
		if err != nil || g == nil {
			t.Fatalf("%s has no gradient: %v", name, err)
		}
		gradients[name] = read(t, d, g)
	}
	return read(t, d, have["head"][0].Tensor), read(t, d, end)[0], gradients
}

func leaf(t *testing.T, d engine.Device, w model.Weights, name string, shape []int) engine.Tensor {
	t.Helper()
	v, err := w.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(v.Shape, shape, func(a int64, b int) bool { return a == int64(b) }) || v.DType != "F32" {
		t.Fatalf("%s is %s%v; its shape is %v", name, v.DType, v.Shape, shape)
	}
	x, err := d.FromBytes(engine.Float32, v.Shape, v.Data)
	if err == nil {
		x, err = d.Leaf(x, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func read(t *testing.T, d engine.Device, x engine.Tensor) []float64 {
	t.Helper()
	x, err := d.Contiguous(x)
	if err != nil {
		t.Fatal(err)
	}
	data, err := d.(interface {
		View(engine.Tensor) ([]byte, error)
	}).View(x)
	if err != nil {
		t.Fatal(err)
	}
	return floats(data)
}
