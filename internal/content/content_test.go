package content

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"
)

func zipped(t *testing.T, names ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, n := range names {
		if _, err := z.Create(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatLiesAtAPath(t *testing.T) {
	run := filepath.Join(t.TempDir(), "checkpoints")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Kind{
		zipped(t, "graph.json", "weights.safetensors"):             Network,
		zipped(t, "m/archive_format", "m/models/model.json"):       PT2,
		zipped(t, "archive_format"):                                PT2,
		zipped(t, "m/version", "serialized_exported_program.json"): PT2,
		zipped(t, "m/data.pkl", "m/data/0"):                        Pickle,
		zipped(t, "x.npy", "deep/y.npy"):                           NPZ,
		zipped(t, "x.npy", "y.txt"):                                Unknown,
		zipped(t):                                                  Unknown,
		file(t, "a.npy", "\x93NUMPY\x01\x00"):                      NPY,
		file(t, "a.pt", "\x80\x02}q\x00."):                         Pickle,
		file(t, "a", "\x02\x00\x00\x00\x00\x00\x00\x00{}"):         Safetensors,
		file(t, "cut", "\x09\x00\x00\x00\x00\x00\x00\x00{}"):       Unknown,
		file(t, "a.txt", "PKs and other words"):                    Unknown,
		file(t, "empty", ""):                                       Unknown,
		filepath.Dir(file(t, "import.json", "{}")):                 Imported,
		filepath.Dir(file(t, "manifest.json", "{}")):               Checkpoint,
		filepath.Dir(run):                                          Run,
		filepath.Dir(file(t, "metrics.jsonl", "")):                 Run,
		filepath.Dir(file(t, "plan.json", "{}")):                   Unknown, // a folder that has only a plan is no run
		t.TempDir():                                                Unknown,
		"/dev/zero":                                                Unknown,
		"none":                                                     Unknown,
	} {
		if got := Of(path); got != want {
			t.Errorf("%s is %v; want %v", path, got, want)
		}
	}
}
