//go:build !cgo

package torch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Without cgo no library can be opened or built, and the errors say so.
func TestNoCgo(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libmillrace_native.so")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MILLRACE_NATIVE", library)
	if _, err := Open(); !errors.Is(err, ErrNoCgo) {
		t.Errorf("opened: %v", err)
	}
	out := filepath.Join(t.TempDir(), "out.so")
	if err := Build(t.Context(), out, nil); !errors.Is(err, ErrNoCgo) {
		t.Errorf("built: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was built")
	}
}
