//go:build !cgo

package torch

import "github.com/millrace-ml/millrace/engine"

// loads says whether this binary can load the shim.
const loads = false

// Engine cannot be had in this binary; see Load.
type Engine struct{}

// Load answers ErrNoCgo.
func Load(string) (*Engine, error) { return nil, ErrNoCgo }

// Name is "torch" without a version: none is loaded.
func (*Engine) Name() string { return "torch" }

// Float is engine.Float32.
func (*Engine) Float() engine.DType { return engine.Float32 }

// Open answers ErrNoCgo.
func (*Engine) Open(int, int) (engine.Device, error) { return nil, ErrNoCgo }

// SumInto answers ErrNoCgo.
func (*Engine) SumInto(_, _ []byte, _ engine.DType) error { return ErrNoCgo }

// DeviceType is "cpu".
func (*Engine) DeviceType() string { return "cpu" }

// Info knows nothing.
func (*Engine) Info() Info { return Info{} }
