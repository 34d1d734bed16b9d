//go:build cgo

package torch

// #include "door.h"
import "C"

import (
	"strconv"
	"strings"
)

// facts are the shim's lines of "key=value".
func (e *Engine) facts() map[string]string {
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
func (e *Engine) Info() Info {
	f := e.facts()
	i := Info{
		Torch:      f["torch"],
		Native:     e.path,
		MKLDNN:     f["mkldnn"],
		OpenMP:     f["openmp"],
		BLASConfig: f["blas_config"],
		BLASCore:   f["blas_core"],
	}
	i.Threads, _ = strconv.Atoi(f["threads"]) // the shim writes a number; 0 if it could not
	i.describeMaps(mapped())
	return i
}
