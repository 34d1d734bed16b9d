//go:build cgo

package torch

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "door.h"

#cgo noescape door_sum_into
#cgo nocallback door_sum_into
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// loads says whether this binary can load the shim.
const loads = true

// Engine is the loaded shim. A process has only one.
type Engine struct {
	path string
	name string

	mu  sync.Mutex
	ops map[string]*C.mr_op
}

var (
	loadMu sync.Mutex
	loaded *Engine
)

// Load loads the shim at path, once. Loading the same file again returns the same Engine. Another file is refused,
// because a process can hold only one libtorch.
func Load(path string) (*Engine, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("engine torch: load: %w", err)
	}
	loadMu.Lock()
	defer loadMu.Unlock()
	runtime.LockOSThread() // lastError must run on the thread of the failing call
	defer runtime.UnlockOSThread()
	if loaded != nil {
		if loaded.path != path {
			return nil, fmt.Errorf("engine torch: load %s: %s is loaded already; a process holds one", path, loaded.path)
		}
		return loaded, nil
	}
	if deps := globalDeps(path); deps != "" {
		cdeps := C.CString(deps)
		defer C.free(unsafe.Pointer(cdeps))
		if why := C.door_preload(cdeps); why != nil {
			return nil, fmt.Errorf("engine torch: load %s: %s", deps, C.GoString(why))
		}
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	if why := C.door_open(cpath); why != nil {
		return nil, fmt.Errorf("engine torch: load %s: %s; to compile it for this machine run: millrace doctor --build", path,
			C.GoString(why))
	}
	if got := int(C.door_abi_version()); got != abiVersion {
		return nil, fmt.Errorf("engine torch: load %s: it has ABI version %d, this millrace needs %d; %s", path, got,
			abiVersion, again(path))
	}
	if C.door_init() != 0 {
		return nil, fmt.Errorf("engine torch: load %s: %w", path, lastError())
	}
	e := &Engine{path: path, ops: map[string]*C.mr_op{}}
	facts := e.facts()
	if err := sameSources(path, facts["sources"]); err != nil {
		return nil, err
	}
	e.name = "torch " + facts["torch"]
	loaded = e
	return e, nil
}

// lastError returns the calling thread's last error. The caller must still be on the thread of the failing call;
// this always holds for Devices.
func lastError() error { return errors.New(C.GoString(C.door_error())) }

// Name returns "torch" and its version.
func (e *Engine) Name() string { return e.name }

// Float returns engine.Float32.
func (e *Engine) Float() engine.DType { return engine.Float32 }

// DeviceType returns "cpu".
func (e *Engine) DeviceType() string { return "cpu" }

// SumInto adds src to dst element by element. Any goroutine may call it.
func (e *Engine) SumInto(dst, src []byte, dtype engine.DType) error {
	size := dtype.Size()
	switch {
	case dtype == engine.Bool || size == 0:
		return fmt.Errorf("engine torch: sum: elements of type %v have no sum; use F32, F64, I64 or U8", dtype)
	case len(dst) != len(src):
		return fmt.Errorf("engine torch: sum: %d bytes into %d; they must be as many", len(src), len(dst))
	case int64(len(dst))%size != 0:
		return fmt.Errorf("engine torch: sum: %d bytes are no whole number of %v", len(dst), dtype)
	case len(dst) == 0:
		return nil
	}
	C.door_sum_into(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), C.int64_t(len(dst)), C.int(dtype))
	return nil
}

// op finds an operator by name. It asks libtorch only the first time.
func (e *Engine) op(name string) (*C.mr_op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if op := e.ops[name]; op != nil {
		return op, nil
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	op := C.door_find(cname)
	if op == nil {
		return nil, fmt.Errorf("engine torch: %s: %w", name, lastError())
	}
	e.ops[name] = op
	return op, nil
}
