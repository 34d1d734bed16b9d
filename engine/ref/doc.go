// Package ref is a small engine in pure Go that computes in float64. Package run is tested with it where libtorch is
// missing.
//
// It implements package engine with the operators of dense networks (linear, relu, tanh, gelu, layer_norm, embedding,
// add, mul, cat, reshape, cross entropy), of recurrent networks (lstm), and of optimizers (in place), and with the
// operators that evaluations and the functions of package engine call. It refuses every other operator by name, and
// shapes that do not fit. Like engine/torch, it counts the bytes of each storage once, for its owner.
//
// It is slow and simple on purpose: all loops have a fixed order, so the same inputs give the same bits.
//
// Lazy makes an engine that behaves like a remote device. Its devices return from every call before anything is done,
// and do the work later, in order, on a goroutine of their own. Events are set late, too. Memory cannot be viewed, and
// holds no valid numbers before it is written and after it is freed. If the caller waits wherever it must, results have
// the same bits as those of an engine that New makes. A missing wait shows as a NaN or an old value. The caller uses
// the same calls for both engines.
package ref

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/millrace-ml/millrace/engine"
)

// Engine is the pure Go engine. The zero value is ready to use; its devices do their work within each call.
type Engine struct {
	lateness *Lateness // nil: not lazy
}

// New makes an engine whose devices do their work within each call.
func New() *Engine { return &Engine{} }

// Name returns "ref".
func (*Engine) Name() string { return "ref" }

// DeviceType returns "cpu".
func (*Engine) DeviceType() string { return "cpu" }

// Float returns engine.Float64.
func (*Engine) Float() engine.DType { return engine.Float64 }

// SumInto adds src to dst element by element.
func (*Engine) SumInto(dst, src []byte, dtype engine.DType) error {
	if len(dst) != len(src) || dtype != engine.Float64 && dtype != engine.Int64 || len(dst)%8 != 0 {
		return fmt.Errorf("engine ref: sum of %d bytes into %d of type %v; it adds equal lengths of F64 or I64", len(src),
			len(dst), dtype)
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

// Open makes a device for a worker.
func (e *Engine) Open(worker, threads int) (engine.Device, error) {
	if worker < 0 || threads < 1 {
		return nil, fmt.Errorf("engine ref: worker %d with %d threads; workers count from 0, threads from 1", worker, threads)
	}
	return newDevice(&account{}, e.lateness, worker), nil
}

// newDevice makes a device that charges its memory to an account. If `late` is nil, the device is not lazy.
func newDevice(of *account, late *Lateness, worker int) *Device {
	d := &Device{account: of, late: late, worker: worker, tracking: true}
	if late != nil {
		d.compute, d.copies = newQueue(*late, worker, 0), newQueue(*late, worker, 1)
	}
	return d
}

// aside is added to the worker's number in a device that Beside makes. So a worker's two lazy devices have different
// delays.
const aside = 1 << 20

// Beside implements engine.Device.
func (d *Device) Beside(threads int) (engine.Device, error) {
	if threads < 1 {
		return nil, fmt.Errorf("engine ref: beside worker %d with %d threads; threads count from 1", d.worker, threads)
	}
	return newDevice(d.account, d.late, d.worker+aside), nil
}

// account counts the bytes of one worker.
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

// storage is memory that tensors share.
type storage struct {
	bytes int64
	owner atomic.Pointer[account]
	queue atomic.Pointer[queue] // of the lazy device that owns the storage; nil if the device is not lazy
	refs  atomic.Int32
	whole value // the whole memory; holds no reference of its own
}

// chargeTo charges the storage to another worker from now on.
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

// release drops a reference. Work that was issued before the last reference was dropped may still use the memory. Work
// that is issued later finds no valid numbers in it.
func (s *storage) release() {
	if s.refs.Add(-1) != 0 {
		return
	}
	s.owner.Load().add(-s.bytes)
	if q := s.queue.Load(); q != nil {
		q.do(func() error {
			s.whole.poison()
			return nil
		})
	}
}

// value is an array with a shape. It holds one reference on its storage, and may use only a part of the storage. Whole
// numbers and truth values are stored as int64s, elements of type Uint8 as bytes.
type value struct {
	shape  []int64
	dtype  engine.DType
	floats []float64
	ints   []int64
	packed []byte // for Uint8
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

func releaseAll(values []value) {
	for _, v := range values {
		v.release()
	}
}

// rows returns n rows of v, beginning with row `first`.
func (v value) rows(first, n int64) value {
	v.retain()
	row := count(v.shape[1:])
	v.shape = append([]int64{n}, v.shape[1:]...)
	switch {
	case v.floats != nil:
		v.floats = v.floats[first*row : (first+n)*row]
	case v.packed != nil:
		v.packed = v.packed[first*row : (first+n)*row]
	default:
		v.ints = v.ints[first*row : (first+n)*row]
	}
	return v
}

// poison overwrites the numbers with NaN, or with an integer that stands out. So a test notices a later read.
func (v value) poison() {
	for i := range v.floats {
		v.floats[i] = math.NaN()
	}
	for i := range v.ints {
		v.ints[i] = math.MinInt64
	}
	for i := range v.packed {
		v.packed[i] = unwritten
	}
}

func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// fresh returns a new value of zeros, charged to the device. On a lazy device the zeros are written later.
func (d *Device) fresh(dtype engine.DType, shape []int64) value {
	n := count(shape)
	v := value{shape: append([]int64{}, shape...), dtype: dtype, storage: &storage{bytes: n * dtype.Size()}}
	switch {
	case dtype.IsFloat():
		v.floats = make([]float64, n)
	case dtype == engine.Uint8:
		v.packed = make([]byte, n)
	default:
		v.ints = make([]int64, n)
	}
	v.whole = value{floats: v.floats, ints: v.ints, packed: v.packed}
	v.owner.Store(d.account)
	v.refs.Store(1)
	d.account.add(v.bytes)
	if d.compute != nil {
		v.queue.Store(d.compute)
		v.poison()
		d.issue(func() {
			clear(v.floats)
			clear(v.ints)
			clear(v.packed)
		})
	}
	return v
}

// memory returns a value's memory as bytes.
func (v value) memory() []byte {
	switch {
	case v.floats != nil:
		return engine.Bytes(v.floats)
	case v.packed != nil:
		return v.packed
	}
	return engine.Bytes(v.ints)
}
