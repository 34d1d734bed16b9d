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
	"time"
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

// A build that is stopped stops its compilers, and leaves no file behind.
func TestAStoppedBuildCleansUp(t *testing.T) {
	dir := t.TempDir()
	libtorch, temporary := filepath.Join(dir, "torch"), filepath.Join(dir, "tmp")
	script := "#!/bin/sh\ntouch " + filepath.Join(dir, "compiling") + "\nexec sleep 60\n"
	for path, text := range map[string]string{
		"torch/include/ATen/core/Tensor.h": "", "torch/lib/libtorch_cpu.so": "", "tmp/keep": "", "compiler": script,
	} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CXX", filepath.Join(dir, "compiler"))
	t.Setenv("TORCH_DIR", libtorch)
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	var log bytes.Buffer
	go func() { ended <- Build(ctx, filepath.Join(dir, "out.so"), &log) }()
	for {
		if _, err := os.Stat(filepath.Join(dir, "compiling")); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v\n%s", err, log.String())
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("it left %v (%v)", left, err)
	}
}
