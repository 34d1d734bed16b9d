package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTheGalleryIsOfToday checks that docs/schedules.md, its drawings and docs/cli.md are what `make gallery` makes.
func TestTheGalleryIsOfToday(t *testing.T) {
	millrace, made := filepath.Join(t.TempDir(), "millrace"), t.TempDir()
	if said, err := exec.Command("go", "build", "-o", millrace, "../../cmd/millrace").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if err := gallery(millrace, made); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.md", "schedules/*.svg"} {
		files, err := filepath.Glob(filepath.Join(made, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files of %s: %v", len(files), pattern, err)
		}
		for _, file := range files {
			name, err := filepath.Rel(made, file)
			if err != nil {
				t.Fatal(err)
			}
			same(t, file, filepath.Join("..", "..", "docs", name))
		}
	}
	old, err := filepath.Glob("../../docs/schedules/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range old {
		if _, err := os.Stat(filepath.Join(made, "schedules", filepath.Base(file))); err != nil {
			t.Errorf("%s is of no schedule", file)
		}
	}
}

// same compares new files with those of the repository.
func same(t *testing.T, made, there string) {
	t.Helper()
	want, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := os.ReadFile(there); err != nil || string(have) != string(want) {
		t.Errorf("%s is not of today (%v): make gallery", there, err)
	}
}
