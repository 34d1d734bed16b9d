package imported_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/imported"
)

// A folder that was half written when an import stopped is no network, not even the one that it was before.
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
		if err := imported.Save(file, dir, imported.Options{From: c.from}); err != nil {
			t.Fatal(err)
		}
		if got := listed(); got != c.want {
			t.Errorf("the folder has %s; want %s", got, c.want)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "network.pt2", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := imported.Save(file, dir, imported.Options{From: imported.PT2}); err == nil {
		t.Fatal("a folder is replaced by a file")
	}
	if _, err := imported.Load(dir); err == nil || !strings.Contains(err.Error(),
		"has no import.json; millrace import -o makes") {
		t.Errorf("half written: %v", err)
	}
}

// A folder cannot be made where a file is, nor of a file that it has.
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

// A folder that is called as a family does not take that family's place.
func TestFamiliesAreNoFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"gpt", "mine"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if imported.IsFile("gpt") || !imported.IsFile("mine") {
		t.Error("gpt is a file, or mine is none")
	}
}
