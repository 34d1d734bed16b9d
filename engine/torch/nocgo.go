//go:build !cgo

package torch

import (
	"context"
	"math"

	"github.com/millrace-ml/millrace/engine"
)

// loads says whether this binary can load the shim.
const loads = false

// Engine does not exist in this binary; see Load.
type Engine struct{}

// Load returns ErrNoCgo.
func Load(string) (*Engine, error) { return nil, ErrNoCgo }

// Name returns "torch" without a version, since none is loaded.
func (*Engine) Name() string { return "torch" }

// Float returns engine.Float32.
func (*Engine) Float() engine.DType { return engine.Float32 }

// Open returns ErrNoCgo.
func (*Engine) Open(int, int) (engine.Device, error) { return nil, ErrNoCgo }

// SumInto returns ErrNoCgo.
func (*Engine) SumInto(_, _ []byte, _ engine.DType) error { return ErrNoCgo }

// DeviceType returns "cpu".
func (*Engine) DeviceType() string { return "cpu" }

// Info returns nothing.
func (*Engine) Info() Info { return Info{} }

// Gloo does not exist in this binary.
type Gloo struct{}

// CanGloo returns ErrNoCgo.
func (*Engine) CanGloo() error { return ErrNoCgo }

// NewGloo returns ErrNoCgo.
func (*Engine) NewGloo(context.Context, string, int, int,
	func(context.Context, []byte) ([][]byte, error)) (*Gloo, error) {
	return nil, ErrNoCgo
}

// SumTolerance returns NaN, since nothing can be summed.
func SumTolerance(int) float64 { return math.NaN() }

// Sum returns ErrNoCgo.
func (*Gloo) Sum([][]byte, engine.DType) error { return ErrNoCgo }

// End does nothing.
func (*Gloo) End(error) {}

// Close does nothing.
func (*Gloo) Close() error { return nil }
