package torch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/native"
)

// Build compiles the embedded shim sources into the file `out` or, if out is empty, into CachePath. It links against
// the libtorch in TORCH_DIR or in the system's paths, and writes the compiler's output to log. It takes a minute or
// two. If no libtorch or no compiler is found, the error says how to get it. If this binary cannot load the result, the
// error is ErrNoCgo.
func Build(ctx context.Context, out string, log io.Writer) error {
	if !loads {
		return ErrNoCgo
	}
	if out == "" {
		p, err := CachePath()
		if err != nil {
			return fmt.Errorf("engine torch: build: %w", err)
		}
		out = p
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("engine torch: build: %w", err)
	}
	dir, remove, err := document.Scratch("millrace-native-")
	if err != nil {
		return fmt.Errorf("engine torch: build: %w", err)
	}
	defer remove()
	if err := os.CopyFS(dir, native.Sources); err != nil {
		return fmt.Errorf("engine torch: build: unpack sources: %w", err)
	}
	var said bytes.Buffer
	// If ctx ends, the script and its compilers are stopped together. They then remove their temporary files.
	cmd := child.Command(ctx, "/bin/sh", filepath.Join(dir, "build.sh"), out)
	cmd.Stdout = io.MultiWriter(log, &said)
	cmd.Stderr = cmd.Stdout // the same writer, so that only one goroutine writes to it
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("engine torch: build: %w", ctx.Err())
		}
		last := said.String()[strings.LastIndexByte(strings.TrimRight(said.String(), "\n"), '\n')+1:]
		return fmt.Errorf("engine torch: build: %s: %w", strings.TrimRight(last, "\n"), err)
	}
	return nil
}
