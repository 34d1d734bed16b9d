//go:build cgo

package torch

// #include "door.h"
import "C"

import (
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// facts are the shim's lines of "key=value".
func (e *Engine) facts() map[string]string {
	runtime.LockOSThread() // the text is the thread's
	defer runtime.UnlockOSThread()
	out := map[string]string{}
	text := C.door_info()
	if text == nil {
		return out
	}
	for line := range strings.Lines(C.GoString(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[k] = v
		}
	}
	return out
}

// Info says what is loaded. Threads are the calling thread's, so call it on a device's
// goroutine to learn that device's.
func (e *Engine) Info() Info { return newInfo(e.facts(), e.path, os.Getenv("OPENBLAS_CORETYPE")) }

// globalDeps is the library that a libtorch with CUDA wants loaded before itself, with its names visible to all.
// libtorch looks for some of CUDA's by name, at run time. "" if the shim at path was linked against a libtorch without
// CUDA, or cannot be read, of which loading it will tell more.
func globalDeps(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, err := f.DynString(tag)
		if err != nil {
			continue
		}
		for _, dir := range filepath.SplitList(strings.Join(paths, ":")) {
			deps := filepath.Join(dir, "libtorch_global_deps.so")
			_, cuda := os.Stat(filepath.Join(dir, "libtorch_cuda.so"))
			if _, err := os.Stat(deps); err == nil && cuda == nil {
				return deps
			}
		}
	}
	return ""
}
