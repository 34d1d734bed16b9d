package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/optim"
)

func manifest(steps int) Manifest {
	return Manifest{
		Model: "mlp", ModelID: "abc", Engine: "ref", Float: "F64", Steps: steps, Seed: 3, Batch: 8, Samples: int64(8 * steps), MicroBatch: 2,
		Optimizer: optim.Settings{Kind: optim.SGD}, Rate: optim.Rate{Kind: optim.Constant, Base: 0.1},
	}
}

func tensors(stage, value byte) []Tensor {
	return []Tensor{
		{Name: fmt.Sprintf("layer%d.weight", stage), DType: engine.Float32, Shape: []int64{3}, Data: bytes.Repeat([]byte{value}, 12)},
		{Name: fmt.Sprintf("layer%d.weight#momentum", stage), DType: engine.Float32, Shape: []int64{3}, Data: bytes.Repeat([]byte{value + 1}, 12)},
	}
}

// write makes a whole checkpoint of two stages.
func write(s *Store, steps int, value byte) (string, error) {
	d, err := s.Begin(steps)
	if err != nil {
		return "", err
	}
	for stage := range byte(2) {
		if err := d.WriteFile(fmt.Sprintf("stage-%d.safetensors", stage), tensors(stage, value), nil); err != nil {
			return "", errors.Join(err, d.Abort())
		}
	}
	return d.Commit(manifest(steps))
}

// valueIn opens a checkpoint and returns the byte its tensors were filled with.
func valueIn(path string) (steps int, value byte, err error) {
	c, err := Open(path)
	if err != nil {
		return 0, 0, err
	}
	x, err := c.Tensor("layer1.weight")
	return c.Manifest.Steps, x.Data[0], errors.Join(err, c.Close())
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestTheLatestCheckpointsAreKept(t *testing.T) {
	s := &Store{Dir: filepath.Join(t.TempDir(), "run", "checkpoints"), Keep: 2}
	if _, err := Latest(t.TempDir()); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	for i, steps := range []int{5, 10, 100} {
		if _, err := write(s, steps, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000010", "step-00000100"}) {
		t.Error(got)
	}
	steps, value, err := valueIn(s.Dir)
	if steps != 100 || value != 2 || err != nil {
		t.Error(steps, value, err)
	}
	if steps, value, err = valueIn(filepath.Join(s.Dir, "step-00000010")); steps != 10 || value != 1 || err != nil {
		t.Error(steps, value, err)
	}
}

func TestACheckpointOfTheSameStepGivesWay(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 3}
	for value := range byte(2) {
		if _, err := write(s, 7, value); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000007"}) {
		t.Error(got)
	}
	if _, value, err := valueIn(s.Dir); value != 1 || err != nil {
		t.Error(value, err)
	}
	// A crash between the two renames leaves the older one under its second name.
	if err := os.Rename(filepath.Join(s.Dir, "step-00000007"), filepath.Join(s.Dir, "step-00000007"+replaced)); err != nil {
		t.Fatal(err)
	}
	if steps, _, err := valueIn(s.Dir); steps != 7 || err != nil {
		t.Error(steps, err)
	}
}

func TestWhatWasCutShortIsNotSeen(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 3}
	if _, err := write(s, 1, 1); err != nil {
		t.Fatal(err)
	}
	d, err := s.Begin(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteFile("stage-0.safetensors", tensors(0, 9), nil); err != nil {
		t.Fatal(err)
	}
	later, err := s.Begin(7) // whose process is still at it, as far as step 2 knows
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(0); err != nil { // of one that died long ago
		t.Fatal(err)
	}
	// The process dies here. Another one goes on.
	if steps, value, err := valueIn(s.Dir); steps != 1 || value != 1 || err != nil {
		t.Error(steps, value, err)
	}
	if _, err := write(s, 2, 2); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000001", "step-00000002", filepath.Base(later.path)}) {
		t.Error(got)
	}
}

// disk is a file on a disk with so many bytes left.
type disk struct {
	output
	left *int
}

func (d disk) Write(p []byte) (int, error) {
	if n := *d.left; len(p) > n {
		*d.left = 0
		_, err := d.output.Write(p[:n])
		return n, errors.Join(syscall.ENOSPC, err)
	}
	*d.left -= len(p)
	return d.output.Write(p)
}

func (d disk) Sync() error {
	if *d.left == 0 {
		return syscall.ENOSPC
	}
	return d.output.Sync()
}

// Whatever the byte at which the disk is full, the error says so, the older checkpoint
// stays whole and nothing half-written stays behind.
func TestADiskThatFillsUpHarmsNothing(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 1}
	if _, err := write(s, 1, 1); err != nil {
		t.Fatal(err)
	}
	full := 0
	for left := 0; ; left += 37 {
		room := left
		s.create = func(path string) (output, error) {
			f, err := os.Create(path)
			return disk{f, &room}, err
		}
		_, err := write(s, 2, 2)
		if err == nil {
			break
		}
		full++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with %d bytes left: %v", left, err)
		}
		if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000001"}) {
			t.Fatalf("with %d bytes left: %v", left, got)
		}
		if steps, value, err := valueIn(s.Dir); steps != 1 || value != 1 || err != nil {
			t.Fatalf("with %d bytes left: %d, %d, %v", left, steps, value, err)
		}
	}
	if full < 10 {
		t.Errorf("the disk was full %d times only", full)
	}
	if steps, _, err := valueIn(s.Dir); steps != 2 || err != nil {
		t.Error(steps, err)
	}
}

// Every byte of every file is under a checksum or checked otherwise.
func TestAChangedByteIsNoticed(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	path, err := write(s, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stage-0.safetensors", "stage-1.safetensors"} {
		file := filepath.Join(path, name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			changed := bytes.Clone(whole)
			changed[i] ^= 0x10
			for _, bad := range [][]byte{changed, whole[:i]} {
				if err := os.WriteFile(file, bad, 0o644); err != nil {
					t.Fatal(err)
				}
				if _, err := Open(path); err == nil || !strings.Contains(err.Error(), name) {
					t.Fatalf("byte %d of %s: %v", i, name, err)
				}
			}
		}
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
}

func TestManifestsAreChecked(t *testing.T) {
	good := manifest(1)
	good.Version = Version
	good.Files = []File{{Name: "a.safetensors", Bytes: 8, CRC32C: "00000000"}}
	text, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeManifest(text); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, says string }{
		{`"version": 1`, `"version": 2`, "version is 2"},
		{`"steps": 1`, `"steps": -1`, "steps"},
		{`"batch": 8`, `"batch": 0`, "batch"},
		{`"micro_batch": 2`, `"micro_batch": 0`, "micro_batch"},
		{`"samples": 8`, `"samples": -8`, "samples"},
		{`"a.safetensors"`, `"../a.safetensors"`, "file name"},
		{`"a.safetensors"`, `"manifest.json"`, "file name"},
		{`"a.safetensors"`, `""`, "file name"},
		{`"bytes": 8`, `"bytes": -8`, "bytes"},
		{`"seed": 3`, `"sead": 3`, "sead"},
		{`"seed": 3`, `"seed": "x"`, "seed"},
	} {
		bad := strings.Replace(string(text), c.from, c.to, 1)
		if bad == string(text) {
			t.Fatalf("%s is not in the manifest", c.from)
		}
		if _, err := decodeManifest([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	for i := range text[:len(text)-2] {
		if _, err := decodeManifest(text[:i]); err == nil {
			t.Errorf("a manifest cut after byte %d was read", i)
		}
	}
}

func FuzzManifest(f *testing.F) {
	good := manifest(1)
	good.Version = Version
	good.Files = []File{{Name: "a.safetensors", Bytes: 8, CRC32C: "00000000"}}
	text, err := good.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"files":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if filepath.Base(file.Name) != file.Name {
				t.Fatalf("%q leaves the directory", file.Name)
			}
		}
		if again, err := m.encode(); err != nil {
			t.Fatal(err)
		} else if _, err := decodeManifest(again); err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
	})
}
