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

// facts returns the shim's lines "key=value" as a map.
func (e *Engine) facts() map[string]string {
	runtime.LockOSThread() // the text belongs to the thread
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

// Info describes what is loaded. Its Threads is the number of threads that an operator uses if the calling thread calls
// it. To get a device's number, call Info on the device's goroutine.
func (e *Engine) Info() Info { return newInfo(e.facts(), e.path, os.Getenv("OPENBLAS_CORETYPE")) }

// globalDeps returns the library that must be loaded before a libtorch with CUDA. The symbols of this library must be
// visible to all libraries, because libtorch looks up some symbols of CUDA by name at run time. If the shim at path was
// linked against a libtorch without CUDA, globalDeps returns "". It also returns "" if the shim cannot be read, because
// loading the shim then gives a better error.
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
