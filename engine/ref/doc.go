// Package ref is a tiny engine in pure Go that computes in float64: what package run
// is tested with where there is no libtorch.
//
// In and out: as package engine says, for the operators of dense networks (linear, relu,
// tanh, gelu, layer_norm, embedding, add, mul, cat, reshape, cross entropy) and recurrent ones
// (lstm), and what optimizers need in place. Bytes are counted as engine/torch counts them, by storage and
// owner. Refused: every other operator, by name, and shapes that do not fit.
//
// It is slow and plain on purpose: loops in one order, so the same inputs give the same bits.
package ref

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// Engine is the pure Go engine. Its zero value is ready.
type Engine struct{}

// New makes an engine.
func New() *Engine { return &Engine{} }

// Name is "ref".
func (*Engine) Name() string { return "ref" }

// Float is engine.Float64.
func (*Engine) Float() engine.DType { return engine.Float64 }

// SumInto adds src to dst element by element.
func (*Engine) SumInto(dst, src []byte, dtype engine.DType) error {
	if len(dst) != len(src) || dtype != engine.Float64 && dtype != engine.Int64 || len(dst)%8 != 0 {
		return fmt.Errorf("engine ref: sum of %d bytes into %d of type %v; it adds equal lengths of F64 or I64", len(src), len(dst), dtype)
	}
	for i := 0; i < len(dst); i += 8 {
		a, b := binary.NativeEndian.Uint64(dst[i:]), binary.NativeEndian.Uint64(src[i:])
		if dtype == engine.Float64 {
			a = math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
		} else {
			a += b
		}
		binary.NativeEndian.PutUint64(dst[i:], a)
	}
	return nil
}

// Open makes a device.
func (e *Engine) Open(worker, threads int) (engine.Device, error) {
	if worker < 0 || threads < 1 {
		return nil, fmt.Errorf("engine ref: worker %d with %d threads; workers count from 0, threads from 1", worker, threads)
	}
	return &Device{account: &account{}, tracking: true}, nil
}

// account is the bytes of one worker.
type account struct{ live, peak atomic.Int64 }

func (a *account) add(n int64) {
	now := a.live.Add(n)
	for {
		peak := a.peak.Load()
		if now <= peak || a.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

// storage is memory that tensors share: whole numbers and truth values are int64s.
type storage struct {
	floats []float64
	ints   []int64
	bytes  int64
	owner  atomic.Pointer[account]
	refs   atomic.Int32
}

// chargeTo has another worker pay for the storage from now on.
func (s *storage) chargeTo(a *account) {
	if before := s.owner.Swap(a); before != a {
		a.add(s.bytes)
		before.add(-s.bytes)
	}
}

func (s *storage) retain() *storage {
	s.refs.Add(1)
	return s
}

func (s *storage) release() {
	if s.refs.Add(-1) == 0 {
		s.owner.Load().add(-s.bytes)
	}
}

// value is numbers with a shape: one reference on its storage.
type value struct {
	shape []int64
	dtype engine.DType
	*storage
}

func (v value) retained() value {
	v.retain()
	return v
}

func (v value) reshaped(shape []int64) value {
	v.retain()
	v.shape = shape
	return v
}

func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// fresh is a new value of zeros, charged to the device.
func (d *Device) fresh(dtype engine.DType, shape []int64) value {
	n := count(shape)
	s := &storage{bytes: n * dtype.Size()}
	if dtype.IsFloat() {
		s.floats = make([]float64, n)
	} else {
		s.ints = make([]int64, n)
	}
	s.owner.Store(d.account)
	s.refs.Store(1)
	d.account.add(s.bytes)
	return value{append([]int64{}, shape...), dtype, s}
}

// memory views a value as the bytes it is.
func (v value) memory() []byte {
	if v.floats != nil {
		if len(v.floats) == 0 {
			return nil
		}
		return unsafe.Slice((*byte)(unsafe.Pointer(&v.floats[0])), 8*len(v.floats))
	}
	if len(v.ints) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v.ints[0])), 8*len(v.ints))
}
