package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// A small file in a run's folder may claim a large size. `report` refuses such a file without taking that much memory.
// It compares the plan with the profile, and the unpacked size of a Timeline with the length of its file.
func TestReportOfFilesThatClaimTooMuch(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	if err := os.Mkdir(filepath.Join(p.Dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"profile mlp --analytic --cluster dapple-b:2 --batch 8 -o run/profile.json",
		"plan --model mlp --cluster dapple-b:2 --batch 8 --stages 2 -o run/plan.json",
		"simulate --model mlp --cluster dapple-b:2 --batch 8 --plan run/plan.json -o run/predicted.json.gz",
		"simulate --model mlp --cluster dapple-b:2 --batch 8 --plan run/plan.json -o run/timeline.json.gz",
		"report run",
	} {
		if out := p.Run(t, strings.Fields(args), true); out != "" {
			t.Fatalf("%s: %s", args, out)
		}
	}
	claim := func(file, want string, change func(text []byte) []byte) {
		t.Helper()
		path := filepath.Join(p.Dir, "run", file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := p.Run(t, []string{"report", "run"}, true); !strings.Contains(out, want) ||
			!strings.HasSuffix(out, "exit 2\n") {
			t.Errorf("%s: %s\nwant it to say %q", file, out, want)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	last := regexp.MustCompile(`"last_layer": \d+(,[^{]*\}\s*\])`)
	claim("plan.json", "its last stage ends with layer 99999; mlp has", func(text []byte) []byte {
		return last.ReplaceAll(text, []byte(`"last_layer": 99999$1`))
	})
	claim("plan.json", "it is nested deeper than 64 levels",
		func([]byte) []byte { return bytes.Repeat([]byte(`{"a":`), 100) })
	claim("plan.json", "it has more than 1048576 objects and lists", func([]byte) []byte {
		return append([]byte(`{"version": 1, "stages": [`), bytes.Repeat([]byte("{},"), 1<<20)...)
	})
	for _, text := range []string{"\n", "a"} {
		claim("timeline.json.gz", "it unpacks to over", func([]byte) []byte { return packedMany(t, text, 100) })
	}
}

// packedMany returns this many megabytes of a letter, compressed.
func packedMany(t *testing.T, letter string, megabytes int) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(bytes.Repeat([]byte(letter), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(packed.Bytes(), megabytes)
}
