// Package engine is the one door to tensors. It says what millrace needs of a
// tensor library; engine/torch answers with libtorch and engine/ref with a tiny
// pure Go twin in float64.
//
// In: operator calls by name, with tensors and plain Go values as arguments.
// Out: tensors, gradients, and how many bytes each worker holds.
// Refused: anything about plans, schedules or transfers. An operator the engine
// does not have, or arguments it cannot take, come back as an error that names
// the operator and the shapes; nothing panics.
//
// Every verb of a Device is issued on the device's stream and may happen later; on a CPU it has happened when
// the call returns. Only Event.Wait, Event.At, Item and Close wait, and on a CPU Await. What a tensor holds
// may be read by its own device at once, since a stream keeps its order; by anybody else only behind an Event
// recorded behind what wrote it: another device awaits it, the host waits. A tensor may be freed while work
// that reads it is under way on the device that frees it. What can only fail when it happens (an index out of
// range) fails the device's stream from there on: every later Wait and Item says so.
//
// # What a Device must do
//
//  1. Issue every verb on its stream in the order of the calls, and have it happen in that order.
//  2. Give back its errors as errors, with the operator and the shapes, and never panic; keep what fails
//     later for Wait and Item.
//  3. Free what a scope made with its End, the tensors kept or disowned apart, and nothing else; while a
//     freed tensor is still read on its stream, keep the memory.
//  4. Charge each byte to one worker: to whoever holds a tensor, to the receiver from Charge or Room on.
//  5. Compute the same bits from the same calls, and BackwardInput with Run of its Work those of Backward.
//  6. Draw masks (Mask) from their key and rows alone, so that all orders and cuts draw the same.
//  7. Say in Close how many handles were still open.
//
// # What whoever drives a Device must do
//
//  1. Open it on a goroutine locked to its thread, and call it there alone, Charge and Room apart.
//  2. Begin a scope before it makes tensors and End it behind them, innermost first; Free what it has
//     disowned.
//  3. Record an Event behind what somebody else is to read, and Await or Wait for theirs before it reads.
//  4. Write no tensor that a Host of it or a graph still reads.
//  5. Run or Free the Work of each BackwardInput.
//  6. Close it last, behind all devices that were opened Beside it.
//
// # Threads
//
// A Device belongs to one goroutine that is locked to its OS thread for life:
// autograd mode, thread counts and the error slot of a native library are
// thread-local. Every method of Device must be called there. A Tensor may be
// handed to another Device of the same Engine (see Device.Adopt); its Shape,
// DType and Bytes may be read anywhere.
package engine

import "fmt"

// DType is the type of a tensor's elements.
type DType uint8

// The element types that cross a stage boundary or sit in a checkpoint.
const (
	Float32 DType = iota + 1
	Float64
	Int64
	Uint8
	Bool
)

// Size is the number of bytes of one element.
func (d DType) Size() int64 {
	switch d {
	case Float32:
		return 4
	case Float64, Int64:
		return 8
	case Uint8, Bool:
		return 1
	}
	return 0
}

// String is the name safetensors uses: F32, F64, I64, U8, BOOL.
func (d DType) String() string {
	switch d {
	case Float32:
		return "F32"
	case Float64:
		return "F64"
	case Int64:
		return "I64"
	case Uint8:
		return "U8"
	case Bool:
		return "BOOL"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// DTypeNamed is the element type of a name, as String gives it; 0 for one that there is not.
func DTypeNamed(name string) DType {
	for d := Float32; d <= Bool; d++ {
		if d.String() == name {
			return d
		}
	}
	return 0
}

// IsFloat says whether tensors of this type can carry a gradient.
func (d DType) IsFloat() bool { return d == Float32 || d == Float64 }

// Here, as an argument of Device.Call, is the device itself.
type Here struct{}

// Tensor is a handle on a tensor of some Device. It is freed explicitly, by a
// scope (Device.Begin, Device.End) or by Free, never by a finalizer.
type Tensor interface {
	Shape() []int64
	DType() DType
	// Bytes is elements times element size, whatever the tensor shares or views.
	Bytes() int64
	// Free gives the handle back. Freeing twice is harmless.
	Free()
}

// Host is a tensor's elements in host memory, in the machine's byte order.
type Host interface {
	// Ready is set when the bytes are there.
	Ready() Event
	// Bytes is the memory, which may be read and written from Ready on until Free.
	Bytes() []byte
	// Free gives the memory back. Any goroutine may; freeing twice is harmless.
	Free()
}

// Memory is what one worker holds, in bytes, by the engine's own allocator.
type Memory struct {
	LiveBytes   int64 `json:"live_bytes"`   // handed out and not yet freed
	PeakBytes   int64 `json:"peak_bytes"`   // highest LiveBytes since ResetPeak
	CachedBytes int64 `json:"cached_bytes"` // freed by us, kept for reuse; not in LiveBytes
}

// Work is the weights' half of one backward, on the goroutine of its device.
type Work interface {
	// Size is how many operators left something to do.
	Size() int
	// Run does it, once, and frees the Work.
	Run() error
	// Free drops what was not run. Freeing twice, or after Run, is harmless.
	Free()
}

// Mark is a position in a Device's list of open handles.
type Mark int

// Engine opens devices. One Engine serves all workers of a process.
type Engine interface {
	// Name and version of what answers: "torch 1.13.1", "ref".
	Name() string
	// Float is the dtype of parameters and activations: Float32 for torch, Float64 for ref.
	Float() DType
	// DeviceType is what the devices it opens are called in profiles and clusters: "cpu".
	DeviceType() string
	// Open makes the device of one worker on the calling goroutine, which must be
	// locked to its thread. threads is the number of intra-operator threads (at least 1).
	Open(worker, threads int) (Device, error)
	// SumInto adds src to dst element by element: the function a collective sums with.
	// Both hold elements of dtype in the machine's byte order and have the same length.
	SumInto(dst, src []byte, dtype DType) error
}

// Device runs operators for one worker. See the package comment for its thread rule.
type Device interface {
	Stream // on which its verbs are issued

	// Call runs an operator of the dispatcher by its schema name, "aten::linear" or
	// "aten::add.Tensor". args are matched by position: Tensor or nil, bool, int, int64,
	// float64, string, []int64, []bool, []float64, []Tensor, DType, Here. Arguments left off at the
	// end take the schema's defaults. Results come in the schema's order; a result that
	// is undefined is nil. The tensors belong to the innermost open scope.
	Call(op string, args ...any) ([]Tensor, error)

	// Full and FromBytes make contiguous tensors. FromBytes copies data before it returns.
	Full(dtype DType, shape []int64, value float64) (Tensor, error)
	FromBytes(dtype DType, shape []int64, data []byte) (Tensor, error)
	// ToHost issues a copy of a contiguous tensor to host memory. Where the tensor lies in host memory
	// already it is that memory itself, so nobody may write the tensor until the Host is freed; the
	// tensor itself may be freed.
	ToHost(t Tensor) (Host, error)
	// FromHost issues a copy of h, as it is by now, into t, whose ToHost made it. t must not be read
	// between ToHost and FromHost. h must not be written afterwards; it may be freed.
	FromHost(t Tensor, h Host) error
	// Item waits for the only element of t and reads it as a float64.
	Item(t Tensor) (float64, error)

	// Leaf is t detached from its graph, sharing its memory: the start of a new graph.
	Leaf(t Tensor, requiresGrad bool) (Tensor, error)
	// Contiguous is t itself (a new handle) or a contiguous copy of it.
	Contiguous(t Tensor) (Tensor, error)
	// Backward runs autograd from outputs, whose gradients are grads (nil for a scalar
	// seeded with one), and frees the graph. Leaves accumulate.
	Backward(outputs, grads []Tensor) error
	// BackwardInput is Backward without the weights' half of operators that can be split
	// (millrace::linear, conv2d, layer_norm, embedding, lstm): every other gradient is complete
	// when it returns, theirs once Run of the Work was called. Running the Work at once
	// gives the bits that Backward gives.
	BackwardInput(outputs, grads []Tensor) (Work, error)
	// Grad is the gradient a leaf has accumulated, or nil.
	Grad(leaf Tensor) (Tensor, error)
	// SetGrad replaces a leaf's gradient; nil clears it.
	SetGrad(leaf, grad Tensor) error
	// NoGrad runs f with autograd off on this thread.
	NoGrad(f func() error) error

	// Begin opens a scope; End frees every tensor made since, except those in keep, which
	// pass to the scope around it, or to the caller where there is none. Scopes nest.
	Begin() Mark
	End(m Mark, keep ...Tensor)
	// Disown takes a tensor out of every scope: the caller owns it and must Free it, or
	// another device must Adopt it.
	Disown(t Tensor) Tensor

	// Adopt takes over a tensor that another device of this engine made, and charges its bytes to this worker. The old
	// handle is spent. Where the other device's work on it may be under way still, Await an Event recorded behind that
	// first.
	Adopt(t Tensor) (Tensor, error)
	// Charge has the bytes of a tensor that another device disowned charged to this worker
	// before it adopts it: what has arrived is the receiver's to hold. Any goroutine may call it
	// while none frees the tensor; one that is freed already is left alone.
	Charge(t Tensor)
	// Room makes a tensor for bytes in flight to this worker, and charges it to the worker. Any goroutine may call it
	// and write the bytes; Adopt takes the tensor over once they are there.
	Room(dtype DType, shape []int64) (t Tensor, data []byte, err error)
	// Beside opens another stream of this device on the calling goroutine, which is locked to another thread. It is a
	// Device of its own, but for the memory, which is charged to the same worker. It is closed before this one.
	Beside(threads int) (Device, error)
	// Memory is what this worker holds; ResetPeak starts a new high-water mark.
	Memory() Memory
	ResetPeak()
	// Close frees every handle still open, disowned ones too, and returns how many there
	// were: above 0 after a finished run, something leaked. Tensors on their way to
	// another device must have been adopted before.
	Close() int
}
