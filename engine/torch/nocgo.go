//go:build !cgo

package torch

import (
	"context"
	"math"

	"github.com/millrace-ml/millrace/engine"
)

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

// Gloo cannot be had in this binary.
type Gloo struct{}

// CanGloo answers ErrNoCgo.
func (*Engine) CanGloo() error { return ErrNoCgo }

// NewGloo answers ErrNoCgo.
func (*Engine) NewGloo(context.Context, string, int, int,
	func(context.Context, []byte) ([][]byte, error)) (*Gloo, error) {
	return nil, ErrNoCgo
}

// SumTolerance is NaN: nothing is summed.
func SumTolerance(int) float64 { return math.NaN() }

// Sum answers ErrNoCgo.
func (*Gloo) Sum([][]byte, engine.DType) error { return ErrNoCgo }

// End does nothing.
func (*Gloo) End(error) {}

// Close does nothing.
func (*Gloo) Close() error { return nil }
