package runs

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

func floats(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// file writes a stage's file in millrace's format.
func file(t *testing.T, dir, name string, list ...checkpoint.Tensor) {
	t.Helper()
	var b bytes.Buffer
	if err := checkpoint.Write(&b, list, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) tensors {
	t.Helper()
	x, err := readCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The hash covers a tensor's name, type, shape and bytes, but not its file, its position, or other files.
func TestHashesAreOfTensorsNotOfFiles(t *testing.T) {
	w := checkpoint.Tensor{Name: "a.weight", DType: engine.Float32, Shape: []int64{2, 1}, Data: floats(1, 2)}
	b := checkpoint.Tensor{Name: "b.count", DType: engine.Int64, Shape: []int64{}, Data: []byte{7, 0, 0, 0, 0, 0, 0, 0}}
	m := checkpoint.Tensor{Name: "a.weight#momentum", DType: engine.Float32, Shape: []int64{2, 1}, Data: floats(3, 4)}
	one, two := t.TempDir(), t.TempDir()
	file(t, one, "stage-000.safetensors", w, b, m)
	file(t, two, "stage-000.safetensors", b)
	file(t, two, "stage-001.safetensors", m, w)
	if err := os.WriteFile(filepath.Join(two, "manifest.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := read(t, one).hashes()
	if got := read(t, two).hashes(); got != want || want.Weights == "" || want.State == "" ||
		want.Weights == want.State {
		t.Errorf("%v in two files, %v in one", got, want)
	}
	for name, change := range map[string]func(w, b, m *checkpoint.Tensor){
		"name":  func(w, _, _ *checkpoint.Tensor) { w.Name = "c.weight" },
		"shape": func(w, _, _ *checkpoint.Tensor) { w.Shape = []int64{1, 2} },
		"bytes": func(w, _, _ *checkpoint.Tensor) { w.Data = floats(1, math.Nextafter32(2, 3)) },
		"type":  func(_, b, _ *checkpoint.Tensor) { b.DType = engine.Float64 },
		"state": func(_, _, m *checkpoint.Tensor) { m.Data = floats(3, 5) },
	} {
		w, b, m, dir := w, b, m, t.TempDir()
		change(&w, &b, &m)
		file(t, dir, "stage-000.safetensors", w, b, m)
		got := read(t, dir).hashes()
		if got == want || (name == "state") != (got.Weights == want.Weights) {
			t.Errorf("another %s: %v after %v", name, got, want)
		}
	}
	file(t, two, "stage-002.safetensors", w)
	if _, err := readCheckpoint(two); err == nil || !strings.Contains(err.Error(), "two files") {
		t.Errorf("a tensor in two files: %v", err)
	}
	if _, err := readCheckpoint(t.TempDir()); err == nil {
		t.Error("a checkpoint without tensors has a hash")
	}
}

func TestFilesCutShortAreNoTensors(t *testing.T) {
	var b bytes.Buffer
	a := checkpoint.Tensor{Name: "a", DType: engine.Float32, Shape: []int64{2}, Data: floats(1, 2)}
	if err := checkpoint.Write(&b, []checkpoint.Tensor{a}, nil); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		if err := (tensors{}).add(b.Bytes()[:n]); err == nil {
			t.Errorf("%d bytes of %d are read", n, b.Len())
		}
	}
}

// The distance of two sets is the distance of their worst tensor. Here the worst tensor is "far". Its difference has
// the norm 0.25, and the wanted tensor has the norm 5, so the distance is 0.05.
func TestDistanceIsTheLargestOfAllTensors(t *testing.T) {
	f := func(v ...float32) tensor { return tensor{"F32", []int64{int64(len(v))}, floats(v...)} }
	want := tensors{"near": f(1000, 0), "far": f(3, 4)}
	d, at := tensors{"near": f(1000, 1), "far": f(3.25, 4)}.distance(want)
	if math.Abs(d-0.05) > 1e-12 || at != "far" {
		t.Errorf("%v at %s; want 0.25/5 at far", d, at)
	}
	if d, at := want.distance(want); d != 0 || at != "" {
		t.Errorf("%v at %q from itself", d, at)
	}
	nan := float32(math.NaN())
	near := want["near"]
	for name, got := range map[string]tensors{
		"missing": {"near": near}, "added": {"near": near, "far": f(3, 4), "new": f(1)},
		"shape": {"near": f(1000), "far": f(3, 4)}, "not finite": {"near": near, "far": f(3, nan)},
		"integers": {"near": near, "far": {"I64", []int64{2}, floats(3, 5)}},
	} {
		if d, at := got.distance(want); !math.IsInf(d, 1) || at == "" {
			t.Errorf("%s: %v apart, %q", name, d, at)
		}
	}
	zero := tensors{"x": f(0)}
	if d, _ := (tensors{"x": f(1)}).distance(zero); !math.IsInf(d, 1) {
		t.Errorf("%v from zero", d)
	}
	if d, _ := (tensors{"x": f(float32(math.Copysign(0, -1)))}).distance(zero); !math.IsInf(d, 1) {
		t.Errorf("another sign of zero is %v apart; the bits differ", d)
	}
}
