// Package torch implements engine.Engine with libtorch, through the C interface of native/shim/millrace.h, which is
// loaded at run time.
//
// In: the path of the compiled shim (Find looks for it, Build makes it), and then operator calls by dispatcher name.
// Out: tensors in host memory, gradients, the bytes that each worker holds, and what is loaded (Info). A binary built
// with CGO_ENABLED=0 cannot build or load a shim. A shim is refused if it is missing, has another ABI version, or was
// built from other sources. If libtorch refuses a call, the error names the operator and the arguments.
//
// A Device follows the thread rule of package engine. Handles are counted and are freed by scopes or by Free; there are
// no finalizers. The shim is loaded once in a process and stays loaded.
package torch

import (
	"errors"

	"github.com/millrace-ml/millrace/engine"
)

// abiVersion is the MR_ABI_VERSION that the shim must have.
const abiVersion = 5

// ErrNoCgo is the error of functions that need the shim, in a binary built with CGO_ENABLED=0. Among them are Open,
// Load, Build and NewGloo.
var ErrNoCgo = errors.New("engine torch: built without cgo; rebuild millrace with CGO_ENABLED=1 and a C compiler")

// ErrNotFound is returned by Open if there is no compiled shim.
var ErrNotFound = errors.New("engine torch: the native library is not installed; run: millrace doctor --build")

// Open finds the shim and loads it.
func Open() (*Engine, error) {
	if !loads {
		return nil, ErrNoCgo
	}
	path, _ := Find()
	if path == "" {
		return nil, ErrNotFound
	}
	return Load(path)
}

var _ engine.Engine = (*Engine)(nil)
