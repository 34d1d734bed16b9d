//go:build cgo

package torch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuildRefuses(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.so")
	t.Setenv("CXX", "no-such-compiler")
	var log bytes.Buffer
	err := Build(context.Background(), out, &log)
	if err == nil || !strings.Contains(err.Error(), "no C++ compiler 'no-such-compiler'") || !strings.Contains(log.String(), "apt-get install g++") {
		t.Errorf("without a compiler: %v; log %q", err, log.String())
	}
	t.Setenv("CXX", "true")
	t.Setenv("TORCH_DIR", t.TempDir())
	if err := Build(context.Background(), out, &log); err == nil || !strings.Contains(err.Error(), "no libtorch in TORCH_DIR=") {
		t.Errorf("without libtorch: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a failed build left a file")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Build(ctx, out, &log); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled build: %v", err)
	}
}
