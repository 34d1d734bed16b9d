package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/stage/optim"
)

// savedRun makes a run's folder with two checkpoints, after 4 and after 8 steps. In each, host one wrote the file of
// stage 0, and host two that of stage 1.
func savedRun(t *testing.T, dir string) {
	t.Helper()
	store := &checkpoint.Store{Dir: filepath.Join(dir, "checkpoints")}
	for _, steps := range []int{4, 8} {
		draft := checkpoint.DraftName(steps, 1)
		at := filepath.Join(store.Dir, draft)
		if err := checkpoint.MakeDraft(at); err != nil {
			t.Fatal(err)
		}
		var files []checkpoint.File
		for stage, layer := range []string{"a", "b"} {
			var tensors []checkpoint.Tensor
			for i, name := range []string{".weight", ".weight#momentum"} {
				tensors = append(tensors, checkpoint.Tensor{Name: layer + name, DType: engine.Float32, Shape: []int64{2, 3},
					Data: bytes.Repeat([]byte{byte(10*steps + 2*stage + i)}, 24)})
			}
			f, err := checkpoint.WriteFile(at, fmt.Sprintf("stage-%03d.safetensors", stage), tensors)
			if err != nil {
				t.Fatal(err)
			}
			f.Host = []string{"one", "two"}[stage]
			files = append(files, f)
		}
		text, err := checkpoint.Seal(checkpoint.Manifest{
			Model: "mine", ModelID: "0123456789abcdef", Engine: "torch", Float: "F32", Steps: steps, Seed: 3, Batch: 16,
			Samples: int64(16 * steps), MicroBatch: 4, Loss: 1.25, Clip: 0.5,
			Optimizer: optim.Settings{Kind: optim.SGD, Momentum: 0.9}, Rate: optim.Rate{Kind: optim.Constant, Base: 0.1},
			Plan: &plan.Plan{Schedule: "1f1b", Weights: "sync", MicroBatch: 4, MicroBatches: 4, Stages: []plan.Stage{
				{FirstLayer: 0, LastLayer: 0, Devices: []int{0}}, {FirstLayer: 1, LastLayer: 2, Devices: []int{1, 2}}}},
			Asked: &checkpoint.Asked{Steps: 20, SaveEvery: 4, EvalEvery: 10},
			Parameters: []checkpoint.Parameter{{Name: "a.weight", Shape: []int64{2, 3}},
				{Name: "b.weight", Shape: []int64{2, 3}}},
		}, files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(draft, text); err != nil {
			t.Fatal(err)
		}
	}
}

// bare returns the program with a folder of its own and without the native library.
func bare(t *testing.T) *clitest.Program {
	t.Helper()
	return &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
}

// tells compares the output of a command with the expected one.
func tells(t *testing.T, p *clitest.Program, line, want string) {
	t.Helper()
	if got := p.Run(t, strings.Fields(line), false); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("%s prints\n%s; want\n%s", line, got, want)
	}
}

func TestCheckpointsAreListedShownAndVerified(t *testing.T) {
	p := bare(t)
	savedRun(t, filepath.Join(p.Dir, "r"))
	tells(t, p, "checkpoint ls r", `
  checkpoint     steps  samples    loss   size  model  plan            workers  files here  hosts
  step-00000004      4       64  1.2500  400 B  mine   1f1b, 2 stages        3  all 2       one, two
  step-00000008      8      128  1.2500  400 B  mine   1f1b, 2 stages        3  all 2       one, two
`)
	tells(t, p, "checkpoint show r", `
checkpoint  r/checkpoints/step-00000008
model       mine (0123456789abcdef), F32 on torch
training    8 steps done, 128 samples, loss 1.2500
batch       16 samples as micro-batches of 4, seed 3
optimizer   sgd (keeps momentum), learning rate 0.1 (constant), gradients clipped to 0.5
asked for   20 steps, save every 4, evaluation every 10
plan        1f1b, 2 stages on 3 workers, weights sync
  stage  layers  workers
      0  0       0
      1  1-2     1 2
  file                    size  tensors  crc32c    here  host
  stage-000.safetensors  200 B        2  037c22f1  yes   one
  stage-001.safetensors  200 B        2  daf5cf52  yes   two
`)
	tells(t, p, "checkpoint verify r", `
step-00000004  ok: 2 files, 400 B, 2 parameter tensors
step-00000008  ok: 2 files, 400 B, 2 parameter tensors
`)
	if err := os.Remove(filepath.Join(p.Dir, "r/checkpoints/step-00000008/stage-001.safetensors")); err != nil {
		t.Fatal(err)
	}
	tells(t, p, "checkpoint ls r/checkpoints/step-00000008", `
  checkpoint     steps  samples    loss   size  model  plan            workers  files here  hosts
  step-00000008      8      128  1.2500  400 B  mine   1f1b, 2 stages        3  1 of 2      one, two
`)
	tells(t, p, "checkpoint verify r/checkpoints", `
step-00000004  ok: 2 files, 400 B, 2 parameter tensors
step-00000008  WRONG
  stage-001.safetensors: not here; host two has written it
millrace: checkpoint: something is wrong with 1 of 2 checkpoints
exit 1
`)
	tells(t, p, "checkpoint verify r --json", `
[
  {
    "path": "r/checkpoints/step-00000004",
    "wrong": []
  },
  {
    "path": "r/checkpoints/step-00000008",
    "wrong": [
      "stage-001.safetensors: not here; host two has written it"
    ]
  }
]
millrace: checkpoint: something is wrong with 1 of 2 checkpoints
exit 1
`)
	for _, verb := range []string{"ls r", "show r"} {
		if text := p.Run(t, strings.Fields("checkpoint "+verb+" --json"), false); !json.Valid([]byte(text)) {
			t.Errorf("%s --json: %s", verb, text)
		}
	}
}

// exported reads the data of each tensor in a safetensors file, without millrace's own reader.
func exported(t *testing.T, path string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(text)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(text[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for name, about := range header {
		if name == "__metadata__" {
			continue
		}
		var e struct {
			DType   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets []uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(about, &e); err != nil || e.DType != "F32" || fmt.Sprint(e.Shape) != "[2 3]" {
			t.Fatalf("%s: %s, %v", name, about, err)
		}
		all[name] = text[8+n:][e.Offsets[0]:e.Offsets[1]]
	}
	return all
}

func TestACheckpointIsExported(t *testing.T) {
	p := bare(t)
	savedRun(t, filepath.Join(p.Dir, "r"))
	tells(t, p, "checkpoint export r -o w.safetensors", "wrote w.safetensors from r/checkpoints/step-00000008\n")
	mine := filepath.Join(p.Dir, "mine.yaml")
	if err := os.WriteFile(mine, []byte("name: mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tells(t, p, "checkpoint export r -o mine.yaml", "millrace: --out mine.yaml: it is there, and what this verb writes "+
		"is no .yaml file; give another --out, or remove it first\nexit 2\n")
	tells(t, p, "manifest slurm mine.yaml -o mine.yaml", "millrace: --manifest mine.yaml: this verb reads that file; "+
		"give another --manifest\nexit 2\n")
	if text, err := os.ReadFile(mine); string(text) != "name: mine\n" {
		t.Errorf("the user's file is now %q, %v", text, err)
	}
	tells(t, p, "checkpoint export r/checkpoints/step-00000004 --optimizer -o o.safetensors",
		"wrote o.safetensors from r/checkpoints/step-00000004\n")
	for file, want := range map[string]map[string]byte{
		"w.safetensors": {"a.weight": 80, "b.weight": 82},
		"o.safetensors": {"a.weight": 40, "a.weight#momentum": 41, "b.weight": 42, "b.weight#momentum": 43},
	} {
		got := exported(t, filepath.Join(p.Dir, file))
		if len(got) != len(want) {
			t.Errorf("%s has %d tensors", file, len(got))
		}
		for name, value := range want {
			if !bytes.Equal(got[name], bytes.Repeat([]byte{value}, 24)) {
				t.Errorf("%s of %s is %v; want %d", name, file, got[name], value)
			}
		}
	}
}

// If a file of a checkpoint is damaged, missing, or something other than a file, verify and export say what is wrong.
// Nothing is exported. The verb ls still lists the checkpoint, and show fails only if the manifest is bad.
func TestBadCheckpointsAreNamed(t *testing.T) {
	const newest = "r/checkpoints/step-00000008/"
	edit := func(name string, change func([]byte) []byte) func(dir string) error {
		return func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, newest, name))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, newest, name), change(text), 0o644)
		}
	}
	linked := func(name string, make func(path string) error) func(dir string) error {
		return func(dir string) error {
			if err := os.Remove(filepath.Join(dir, newest, name)); err != nil {
				return err
			}
			return make(filepath.Join(dir, newest, name))
		}
	}
	for name, c := range map[string]struct {
		harm func(dir string) error
		says string
	}{
		"cut": {edit("stage-001.safetensors", func(b []byte) []byte { return b[:150] }), "150 bytes; the manifest says 200"},
		"flipped": {edit("stage-001.safetensors", func(b []byte) []byte { b[190] ^= 4; return b }),
			"the file has changed since it was written"},
		"huge header": {edit("stage-000.safetensors", func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b, 1<<62)
			return b
		}), "the file has changed since"},
		"missing": {linked("stage-000.safetensors", func(string) error { return nil }), "stage-000.safetensors"},
		"a pipe": {linked("stage-000.safetensors", func(path string) error { return syscall.Mkfifo(path, 0o644) }),
			"no regular file"},
		"a device": {linked("stage-000.safetensors", func(path string) error { return os.Symlink("/dev/zero", path) }),
			"no regular file"},
		"a circle": {linked("stage-000.safetensors", func(path string) error { return os.Symlink(path, path) }),
			"too many levels"},
		"a folder": {linked("stage-000.safetensors", func(path string) error { return os.Mkdir(path, 0o755) }),
			"no regular file"},
		"cut manifest": {edit("manifest.json", func(b []byte) []byte { return b[:len(b)/2] }), "cut short or no JSON"},
		"changed manifest": {edit("manifest.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"steps": 8`), []byte(`"steps": 9`), 1)
		}), "it has changed since it was written"},
		"no manifest": {linked("manifest.json", func(string) error { return nil }), "has no manifest.json"},
		"pipe manifest": {linked("manifest.json", func(path string) error { return syscall.Mkfifo(path, 0o644) }),
			"no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := bare(t)
			savedRun(t, filepath.Join(p.Dir, "r"))
			if err := c.harm(p.Dir); err != nil {
				t.Fatal(err)
			}
			for line, codes := range map[string]string{
				"checkpoint verify r": "exit 1", "checkpoint export r -o w.safetensors": "exit 2",
				"checkpoint ls r": "", "checkpoint show r": "exit 2",
			} {
				out := p.Run(t, strings.Fields(line), false)
				manifest := strings.Contains(name, "manifest")
				if strings.HasPrefix(line, "checkpoint show") && !manifest {
					codes = ""
				}
				says := c.says
				if strings.HasPrefix(line, "checkpoint ls") || codes == "" && !manifest {
					says = "step-00000008"
				}
				if !strings.Contains(out, codes) || codes == "" && strings.Contains(out, "exit") || !strings.Contains(out, says) ||
					strings.Contains(out, "goroutine") {
					t.Errorf("%s: want %q and %q in\n%s", line, codes, says, out)
				}
			}
			if _, err := os.Stat(filepath.Join(p.Dir, "w.safetensors")); err == nil {
				t.Error("a file was exported")
			}
		})
	}
}

func TestWhereThereIsNoCheckpoint(t *testing.T) {
	p := bare(t)
	if err := os.MkdirAll(filepath.Join(p.Dir, "empty/checkpoints"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"ls", "show", "verify", "export -o w"} {
		for of, says := range map[string]string{
			"none": "there is no none", "empty": "empty/checkpoints holds no step-N directory", "file": "file",
			"empty/checkpoints/step-00000003": "step-00000003",
		} {
			out := p.Run(t, append([]string{"checkpoint"}, strings.Fields(verb+" "+of)...), false)
			if !strings.HasPrefix(out, "millrace: checkpoint: ") || !strings.Contains(out, says) ||
				!strings.HasSuffix(out, "exit 2\n") {
				t.Errorf("%s %s:\n%s", verb, of, out)
			}
		}
	}
	for _, line := range []string{"checkpoint ls", "checkpoint export none", "checkpoint shew none"} {
		if out := p.Run(t, strings.Fields(line), false); !strings.HasSuffix(out, "exit 2\n") {
			t.Errorf("%s:\n%s", line, out)
		}
	}
}
