//go:build cgo

package torch

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// build.sh compiles the hash of its sources into the library, for this package to check.
func TestLibrariesSayWhatTheyAreCompiledFrom(t *testing.T) {
	dir := t.TempDir()
	asked, compiler := filepath.Join(dir, "asked"), filepath.Join(dir, "compiler")
	for path, text := range map[string]string{
		"torch/include/ATen/core/Tensor.h": "", "torch/lib/libtorch_cpu.so": "",
		"torch/include/torch/csrc/api/include/torch/version.h": versionHeader("1.13.1"),
		"compiler": "#!/bin/sh\n" +
			"echo \"$@\" >>" + asked + "\nwhile [ $# -gt 1 ]; do if [ $1 = -o ]; then : >$2; fi; shift; done\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CXX", compiler)
	t.Setenv("TORCH_DIR", filepath.Join(dir, "torch"))
	t.Setenv("LC_ALL", "en_US.UTF-8") // in this locale, sort orders the files differently
	if err := Build(context.Background(), filepath.Join(dir, "out.so"), io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`-DMR_SOURCES="(\w*)"`).FindStringSubmatch(string(text))
	if said == nil || said[1] != sourceHash() || len(said[1]) != 12 {
		t.Errorf("build.sh says %v; want %s", said, sourceHash())
	}
}

// A library of other sources is refused, and the error says how to compile it again.
func TestLibrariesOfOtherSources(t *testing.T) {
	for sources, want := range map[string]string{sourceHash(): "",
		"0123456789ab": "/a/b.so: it was compiled from other sources (0123456789ab) than this millrace has (" + sourceHash() +
			"); compile it again with scripts/native.sh /a/b.so"} {
		if err := sameSources("/a/b.so", sources); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("sources %q: %v; want %q", sources, err, want)
		}
	}
	e, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if got := e.facts()["sources"]; got != sourceHash() {
		t.Errorf("a library of %s was loaded; these sources are %s", got, sourceHash())
	}
}
