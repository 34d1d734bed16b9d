// Package torch answers engine.Engine with libtorch, through the C door of
// native/shim/millrace.h, opened at run time.
//
// In: the path of the compiled shim (Find looks for it, Build makes it) and then
// operator calls by dispatcher name. Out: tensors in host memory, gradients, bytes
// held per worker, and what is loaded (Info).
// Refused: everything when the binary was built with CGO_ENABLED=0, when the shim is
// not found, has another ABI version or is of other sources, and, per call, what libtorch refuses: the
// error names the operator and the arguments.
//
// A Device follows the thread rule of package engine. Handles are counted and given
// back by scopes or by Free; nothing here has a finalizer. The shim is loaded once in
// a process and stays.
package torch

import (
	"errors"

	"github.com/millrace-ml/millrace/engine"
)

// abiVersion is MR_ABI_VERSION of the shim this package speaks to.
const abiVersion = 5

// ErrNoCgo is what Load answers in a binary built with CGO_ENABLED=0.
var ErrNoCgo = errors.New("engine torch: built without cgo; rebuild millrace with CGO_ENABLED=1 and a C compiler")

// ErrNotFound is what Open answers when no compiled shim is found.
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
