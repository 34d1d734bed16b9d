// Package engine is the interface to tensor libraries. engine/torch implements it with libtorch, engine/ref with a
// small float64 library in pure Go.
//
// Operators are called by name, with tensors and plain Go values as arguments. A Device returns tensors and gradients,
// and counts the bytes that its worker holds. It knows nothing about plans, schedules or transfers. A call of an
// unknown operator, or with arguments that the operator cannot take, returns an error with the operator and the shapes;
// nothing panics.
//
// Every method of a Device issues its work on the device's stream, and the work may be done later. On a CPU the work is
// done when the method returns. Only Event.Wait, Event.At, Item and Close wait for work; on a CPU, Await waits too. A
// stream keeps its order, so a device may read its own tensors at once. Another device or the host may read a tensor
// only after an Event that was recorded after the write. The device Awaits the Event; the host Waits for it. A device
// may free a tensor while its own earlier work still reads it. Some errors occur only when the work is done (an index
// out of range). Such an error makes the stream fail from there on: every later Wait and Item returns it.
//
// # Duties of a Device
//
//  1. Issue every method's work on its stream in the order of the calls, and run it in that order.
//  2. Return errors with the operator and the shapes, and never panic; keep later errors for Wait and Item.
//  3. At the End of a scope, free what was made in it, except tensors that are kept or disowned. While work on
//     its stream still reads a freed tensor, keep the memory.
//  4. Charge each byte to one worker: the tensor's holder or, from Charge or Room on, its receiver.
//  5. Compute the same bits from the same calls, and the same bits with BackwardInput and Work.Run as with Backward.
//  6. Compute a mask (Mask) from its key and the numbers of its rows alone. The order of calls and the division of
//     the model into stages must not matter.
//  7. Return from Close how many handles were still open.
//
// # Duties of a Device's caller
//
//  1. Open it on a goroutine locked to its thread, and call it only there, except Charge, Room and Beside.
//  2. Begin a scope before making tensors and End it after them, innermost first; Free what was disowned.
//  3. Record an Event after work whose result another device or the host will read. Before reading what
//     another device writes, Await or Wait for its Event.
//  4. Do not write to a tensor while one of its Hosts or a graph still reads it.
//  5. Run or Free the Work of each BackwardInput.
//  6. Close it last, after all devices that were opened Beside it.
//
// # Threads
//
// A Device belongs to one goroutine that stays locked to its OS thread: autograd mode, thread counts and the last error
// of a native library are thread-local. Every method of Device except Charge, Room and Beside must be called there. A
// Tensor may be handed to another Device of the same Engine (see Device.Adopt). Its Shape, DType and Bytes may be read
// on any goroutine.
package engine

import "fmt"

// DType is the type of a tensor's elements.
type DType uint8

// The element types that cross a stage boundary or are saved in a checkpoint.
const (
	Float32 DType = iota + 1
	Float64
	Int64
	Uint8
	Bool
)

// Size returns the bytes of one element.
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

// String returns the name that safetensors uses: F32, F64, I64, U8, BOOL.
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

// DTypeNamed returns the element type whose String is name, or 0 if there is none.
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

// Here, as an argument of Device.Call, means the device itself.
type Here struct{}

// Tensor is a handle on a tensor of some Device. It is freed explicitly, by a scope (Device.Begin, Device.End), by Free
// or by Device.Close, never by a finalizer.
type Tensor interface {
	Shape() []int64
	DType() DType
	// Bytes returns the number of elements times the element size, even if the tensor shares memory.
	Bytes() int64
	// Free releases the handle. Freeing twice is harmless.
	Free()
}

// Host holds a tensor's elements in host memory, in the machine's byte order.
type Host interface {
	// Ready returns an event that is set when the bytes are complete.
	Ready() Event
	// Bytes returns the memory. It may be read and written after Ready and until Free.
	Bytes() []byte
	// Free releases the memory. Any goroutine may call it. Freeing twice is harmless.
	Free()
}

// Memory says how many bytes one worker holds, as counted by the engine's own allocator.
type Memory struct {
	LiveBytes   int64 `json:"live_bytes"`   // handed out and not freed
	PeakBytes   int64 `json:"peak_bytes"`   // highest LiveBytes since ResetPeak
	CachedBytes int64 `json:"cached_bytes"` // freed, but kept for reuse; not in LiveBytes
}

// Work is the second half of a backward: the gradients of the weights. It is used on its device's goroutine.
type Work interface {
	// Size returns how many operators have work left.
	Size() int
	// Run does the work, once, and frees the Work.
	Run() error
	// Free drops work that was not run. Freeing twice, or after Run, is harmless.
	Free()
}

// Mark is a position in a Device's list of open handles.
type Mark int

// Engine opens devices. One Engine serves all workers of a process.
type Engine interface {
	// Name returns the library's name and version: "torch 1.13.1", "ref".
	Name() string
	// Float returns the type of parameters and activations: Float32 for torch, Float64 for ref.
	Float() DType
	// DeviceType returns the name of the device type in profiles and clusters: "cpu".
	DeviceType() string
	// Open makes the device of one worker on the calling goroutine, which must be locked to its thread. The argument
	// `threads` is the number of threads an operator may use (at least 1).
	Open(worker, threads int) (Device, error)
	// SumInto adds src to dst element by element; collectives sum with it. Both slices hold elements of dtype in the
	// machine's byte order and have the same length.
	SumInto(dst, src []byte, dtype DType) error
}

// Device runs operators for one worker. See the package comment for its thread rule.
type Device interface {
	Stream // the stream on which the device issues its work

	// Call runs an operator by its dispatcher name, such as "aten::linear" or "aten::add.Tensor". The values in args
	// are matched by position: Tensor or nil, bool, int, int64, float64, string, []int64, []bool, []float64, []Tensor,
	// DType, Here. Arguments left off at the end take the schema's defaults. Results come in the schema's order; an
	// undefined result is nil. The tensors belong to the innermost open scope.
	Call(op string, args ...any) ([]Tensor, error)

	// Full and FromBytes make contiguous tensors. FromBytes copies data before it returns.
	Full(dtype DType, shape []int64, value float64) (Tensor, error)
	FromBytes(dtype DType, shape []int64, data []byte) (Tensor, error)
	// ToHost issues a copy of a contiguous tensor to host memory. If the tensor already lies in host memory, the
	// Host is that memory itself, so the tensor must not be written until the Host is freed. The tensor itself may
	// be freed.
	ToHost(t Tensor) (Host, error)
	// FromHost issues a copy of h's current content into t; h must come from ToHost of t. t must not be read between
	// ToHost and FromHost. After FromHost, h must not be written, but may be freed.
	FromHost(t Tensor, h Host) error
	// Item waits for the only element of t and returns it as a float64.
	Item(t Tensor) (float64, error)

	// Leaf returns t detached from its graph, as the start of a new graph. It shares t's memory.
	Leaf(t Tensor, requiresGrad bool) (Tensor, error)
	// Contiguous returns t itself (as a new handle) or a contiguous copy of it.
	Contiguous(t Tensor) (Tensor, error)
	// Backward runs autograd from outputs and frees the graph. The list `grads` has the outputs' gradients; a nil
	// gradient means 1 and needs a scalar output. If a leaf already has a gradient, the new gradient is added to it.
	Backward(outputs, grads []Tensor) error
	// BackwardInput is like Backward, but omits the gradients of the weights of operators that can be split. These are
	// millrace::linear, linear_gelu, linear_add, conv2d, layer_norm, embedding and lstm. All other gradients are
	// complete when it returns. Work.Run adds the omitted gradients. BackwardInput and Run together compute the same
	// bits as Backward.
	BackwardInput(outputs, grads []Tensor) (Work, error)
	// Grad returns the gradient a leaf has accumulated, or nil.
	Grad(leaf Tensor) (Tensor, error)
	// SetGrad replaces a leaf's gradient; nil clears it.
	SetGrad(leaf, grad Tensor) error
	// NoGrad runs f with autograd off on this thread.
	NoGrad(f func() error) error

	// Begin opens a scope. End frees every tensor made since, except those in `keep`. Kept tensors pass to the
	// enclosing scope, or to the caller if there is none. Scopes nest.
	Begin() Mark
	End(m Mark, keep ...Tensor)
	// Disown takes a tensor out of every scope. The caller then owns it, and must either Free it or have another device
	// Adopt it.
	Disown(t Tensor) Tensor

	// Adopt takes over a tensor that another device of this engine made, and charges its bytes to this worker. The
	// old handle becomes invalid. If the other device may still be working on the tensor, first Await an Event that
	// it has recorded after that work.
	Adopt(t Tensor) (Tensor, error)
	// Charge charges the bytes of a disowned tensor of another device to this worker before it adopts the tensor. So
	// the receiver is charged for a tensor as soon as it has arrived. Charge may run on any goroutine, as long as no
	// other goroutine frees the tensor meanwhile. A freed tensor is ignored.
	Charge(t Tensor)
	// Room makes a tensor for data that is on its way to this worker. The tensor is charged to the worker at once. Any
	// goroutine may call Room and write the data. Adopt takes the tensor over once the data is complete.
	Room(dtype DType, shape []int64) (t Tensor, data []byte, err error)
	// Beside opens another stream of this device on the calling goroutine, which must be locked to another thread. The
	// new Device charges its memory to the same worker. It must be closed before this one.
	Beside(threads int) (Device, error)
	// Memory returns what this worker holds. ResetPeak starts a new high-water mark.
	Memory() Memory
	ResetPeak()
	// Close frees every handle still open, including disowned ones, and returns how many there were. A number above 0
	// after a finished run is a leak. Tensors for another device must have been adopted before.
	Close() int
}
