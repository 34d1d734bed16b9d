package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/training"
)

// While a run uses a folder, no other run may use it.
func TestAFolderIsOneRuns(t *testing.T) {
	dir := t.TempDir()
	first, err := training.TakeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := training.TakeFolder(dir); err == nil || !strings.Contains(err.Error(), "another run is under way") {
		t.Errorf("taken twice: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := training.TakeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// Checking whether a folder can be written to leaves nothing behind, neither in it nor in its parents.
func TestCheckFolderLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		dir: "", filepath.Join(dir, "a", "b"): "", file: "is a file", filepath.Join(file, "a"): "is a file",
		filepath.Join(file, "a", "b"): "is a file",
	} {
		err := cli.CheckFolder("--out", path)
		if got := err != nil; got != (says != "") || got && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q in it", path, err, says)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left: %v", left, err)
	}
}
