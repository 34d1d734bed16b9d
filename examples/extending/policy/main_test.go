package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPolicyIsARow adds a weight policy in copies of two source files, and builds with these copies. One copy gets a
// row, and the other gets the policy's name. The documentation shows the same row. Under the new policy a gradient is
// two updates late, so every stage holds three versions.
func TestAPolicyIsARow(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles packages anew")
	}
	replaced := map[string]string{}
	put := func(file, before, text string) {
		t.Helper()
		path, err := filepath.Abs(filepath.Join("..", "..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, tail, found := strings.Cut(string(source), before)
		if !found {
			t.Fatalf("%s has no %q any more", file, before)
		}
		own := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(own, []byte(head+text+before+tail), 0o666); err != nil {
			t.Fatal(err)
		}
		replaced[path] = own
	}
	row, err := os.ReadFile("row.txt")
	if err != nil {
		t.Fatal(err)
	}
	put("schedule/policy.go", "	{policy: Elastic,", "	"+string(row))
	put("schedule/family/rr.go", "schedule.Latest},", `"3bw", `)
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o666); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("go", "run", "-overlay", file, ".", "3bw").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	const want = "stage 0: 3 versions\nstage 1: 3 versions\nstage 2: 3 versions\n"
	if string(said) != want {
		t.Errorf("it says\n%s; want\n%s", said, want)
	}
}
