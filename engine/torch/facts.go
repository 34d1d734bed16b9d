//go:build cgo

package torch

// #include "door.h"
import "C"

import (
	"os"
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
func (e *Engine) Info() Info { return newInfo(e.facts(), e.path, os.Getenv("OPENBLAS_CORETYPE")) }
