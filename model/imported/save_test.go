package imported_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/imported"
)

// If an import stops while it writes a folder, the folder has no network afterwards, not even the previous one.
func TestAHalfWrittenFolderIsNoNetwork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net")
	file := filepath.Join(t.TempDir(), "a.mr")
	if err := os.WriteFile(file, []byte("of torch"), 0o600); err != nil {
		t.Fatal(err)
	}
	listed := func() string {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range all {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct{ from, want string }{
		{imported.PT2, "import.json network.pt2"}, {imported.Torch, "import.json network.mr"},
	} {
		if err := imported.Save(t.Context(), file, dir, imported.Options{From: c.from}); err != nil {
			t.Fatal(err)
		}
		if got := listed(); got != c.want {
			t.Errorf("the folder has %s; want %s", got, c.want)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "network.pt2", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("stopped by SIGINT"))
	if err := imported.Save(ended, file, filepath.Join(dir, "stopped"), imported.Options{}); err == nil ||
		!strings.Contains(err.Error(), "stopped by SIGINT") {
		t.Errorf("an import that is stopped: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "stopped")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	if err := os.Remove(filepath.Join(dir, "stopped")); err != nil {
		t.Fatal(err)
	}
	if err := imported.Save(t.Context(), file, dir, imported.Options{From: imported.PT2}); err == nil {
		t.Fatal("a folder is replaced by a file")
	}
	if _, err := imported.Load(dir); err == nil || !strings.Contains(err.Error(),
		"has no import.json; millrace import -o makes") {
		t.Errorf("half written: %v", err)
	}
}

// CheckFolder refuses a target that is a file. It also refuses a target folder whose own network file is the file to be
// copied.
func TestFoldersThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	file, inside := filepath.Join(dir, "a.mr"), filepath.Join(dir, "network.mr")
	for _, path := range []string{file, inside} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, dir, want string }{
		{file, file, "is a file; a network is written to a folder"},
		{inside, dir, "is in that folder already; give another folder"},
		{file, dir, ""}, {file, filepath.Join(dir, "new"), ""},
	} {
		if err := imported.CheckFolder(c.path, c.dir); (err == nil) != (c.want == "") || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v; want it to say %q", c.path, c.dir, err, c.want)
		}
	}
}

// A folder with the name of a family does not replace that family.
func TestFamiliesAreNoFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"gpt", "mine"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if !imported.IsFile("gone/net") || imported.IsFile("gone/net.yaml") || imported.IsFile("gone") {
		t.Error("a path to nowhere is a file of a network, unless it is one of YAML")
	}
	if imported.IsFile("gpt") || !imported.IsFile("mine") {
		t.Error("gpt is a file, or mine is none")
	}
}

// A network is recognized by its content, not by its name. For other files the error says what they are.
func TestNetworksAreKnownByWhatTheyHave(t *testing.T) {
	a := torchtest.Run(t, torchtest.Request{Name: "averages", File: "hidden.py"})[0]
	dir := t.TempDir()
	raw, err := os.ReadFile(a.Model)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"net.pt2": string(raw), "w.npz": "\x02\x00\x00\x00\x00\x00\x00\x00{}",
		"w.pt":              "\x80\x02}q\x00.",
		"run/metrics.jsonl": ""}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"net.pt2": "", "w.npz": "it is a file of safetensors", "w.pt": "it is a pickle",
		"run": "it is what a run has left"} {
		if _, err := imported.Load(filepath.Join(dir, name)); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want it to say %q", name, err, want)
		}
	}
	for _, from := range []string{imported.Torch, imported.PT2} {
		if _, err := imported.Open(filepath.Join(dir, "net.pt2"), imported.Options{From: from}); (err == nil) !=
			(from == imported.Torch) || err != nil && !strings.Contains(err.Error(), "give --from torch") {
			t.Errorf("from %s: %v", from, err)
		}
	}
}
