package ref

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// Tensor is a handle on a tensor of this engine.
type Tensor struct {
	value
	node  *node
	freed atomic.Bool
	owned bool   // disowned: no scope frees it
	room  []byte // on a lazy device: memory from Room, which Adopt copies
}

// Shape implements engine.Tensor.
func (t *Tensor) Shape() []int64 { return slices.Clone(t.shape) }

// DType implements engine.Tensor.
func (t *Tensor) DType() engine.DType { return t.dtype }

// Bytes implements engine.Tensor.
func (t *Tensor) Bytes() int64 { return count(t.shape) * t.dtype.Size() }

// Free implements engine.Tensor.
func (t *Tensor) Free() {
	if t == nil || t.freed.Swap(true) {
		return
	}
	t.release()
	t.node.release()
}

// Device is one worker's device. Its methods are those of engine.Device, which is all that a worker needs of tensors.
type Device struct {
	account  *account
	late     *Lateness // nil: the device is not lazy
	worker   int
	compute  *queue // nil: work is done when a call returns
	copies   *queue // on a lazy device: its stream of copies to and from host memory
	hosts    atomic.Int32
	tracking bool
	open     []*Tensor            // made in a scope, oldest first
	marks    []int                // where in `open` each scope begins
	owned    map[*Tensor]struct{} // tensors of the caller; freed ones are removed when there are many
	crowd    int
}

var _ engine.Device = (*Device)(nil)

// handle makes a tensor of a value, and takes over the value's reference.
func (d *Device) handle(v value, n *node) *Tensor {
	t := &Tensor{value: v, node: n.retain()}
	d.file(t)
	return t
}

// file puts a tensor into the innermost scope. Without a scope it belongs to the caller.
func (d *Device) file(t *Tensor) {
	if len(d.marks) == 0 {
		d.own(t)
		return
	}
	d.open = append(d.open, t)
}

func tensorOf(t engine.Tensor) (*Tensor, error) {
	r, ok := t.(*Tensor)
	if !ok || r == nil {
		return nil, fmt.Errorf("engine ref: a tensor of %T is not this engine's", t)
	}
	if r.freed.Load() {
		return nil, fmt.Errorf("engine ref: the tensor of shape %v is freed", r.shape)
	}
	return r, nil
}

func sane(dtype engine.DType, shape []int64) error {
	if dtype == engine.Float32 || dtype.Size() == 0 {
		return fmt.Errorf("engine ref: no tensors of type %v; floats are F64", dtype)
	}
	if !fits(shape) {
		return fmt.Errorf("engine ref: no tensors of shape %v; lengths are 0 or more, and elements at most %d", shape,
			int64(most))
	}
	return nil
}

// most is the largest number of elements of a tensor.
const most = 1 << 32

// fits says whether a tensor can have a shape.
func fits(shape []int64) bool {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > most/max(n, 1) {
			return false
		}
		n *= d
	}
	return true
}

// Full implements engine.Device.
func (d *Device) Full(dtype engine.DType, shape []int64, x float64) (engine.Tensor, error) {
	if err := sane(dtype, shape); err != nil {
		return nil, err
	}
	v := d.fresh(dtype, shape)
	d.issue(func() {
		for i := range v.floats {
			v.floats[i] = x
		}
		for i := range v.ints {
			v.ints[i] = int64(x)
		}
	})
	return d.handle(v, nil), nil
}

// FromBytes implements engine.Device.
func (d *Device) FromBytes(dtype engine.DType, shape []int64, data []byte) (engine.Tensor, error) {
	if err := sane(dtype, shape); err != nil {
		return nil, err
	}
	if dtype.Size() != 8 || int64(len(data)) != 8*count(shape) {
		return nil, fmt.Errorf("engine ref: %d bytes for %v of shape %v", len(data), dtype, shape)
	}
	v := d.fresh(dtype, shape)
	if d.compute != nil {
		data = bytes.Clone(data) // the caller may reuse its memory after the call
	}
	d.issue(func() { copy(v.memory(), data) })
	return d.handle(v, nil), nil
}

// View returns a tensor's own memory, valid until the tensor is freed. A lazy device refuses.
func (d *Device) View(t engine.Tensor) ([]byte, error) {
	r, err := tensorOf(t)
	if err != nil {
		return nil, err
	}
	if d.compute != nil {
		return nil, fmt.Errorf("engine ref: the memory of a lazy device cannot be viewed; ToHost copies it")
	}
	return r.memory(), nil
}

// Item implements engine.Device.
func (d *Device) Item(t engine.Tensor) (float64, error) {
	r, err := tensorOf(t)
	if err != nil {
		return 0, err
	}
	if count(r.shape) != 1 {
		return 0, fmt.Errorf("engine ref: a tensor of shape %v has more than one element", r.shape)
	}
	if d.compute != nil {
		if err := d.compute.record().Wait(); err != nil {
			return 0, err
		}
	}
	if r.floats != nil {
		return r.floats[0], nil
	}
	return float64(r.ints[0]), nil
}

// Leaf implements engine.Device.
func (d *Device) Leaf(t engine.Tensor, requiresGrad bool) (engine.Tensor, error) {
	r, err := tensorOf(t)
	if err != nil {
		return nil, err
	}
	var n *node
	if requiresGrad {
		if !r.dtype.IsFloat() {
			return nil, fmt.Errorf("engine ref: a tensor of type %v carries no gradient", r.dtype)
		}
		n = &node{leaf: true, shape: r.shape}
	}
	return d.handle(r.retained(), n), nil
}

// Contiguous implements engine.Device. Every tensor of this engine is contiguous.
func (d *Device) Contiguous(t engine.Tensor) (engine.Tensor, error) {
	r, err := tensorOf(t)
	if err != nil {
		return nil, err
	}
	return d.handle(r.retained(), r.node), nil
}

// seeds returns the nodes at which a backward starts, and the gradients of these nodes.
func (d *Device) seeds(outputs, grads []engine.Tensor) (roots []*node, first []value, err error) {
	defer func() {
		if err != nil {
			releaseAll(first)
		}
	}()
	for i, o := range outputs {
		r, err := tensorOf(o)
		if err != nil {
			return nil, first, err
		}
		if r.node == nil {
			return nil, first, fmt.Errorf("engine ref: output %d of shape %v has no graph", i, r.shape)
		}
		var g value
		switch {
		case i < len(grads) && grads[i] != nil:
			t, err := tensorOf(grads[i])
			if err != nil {
				return nil, first, err
			}
			if !slices.Equal(t.shape, r.shape) {
				return nil, first, fmt.Errorf("engine ref: a gradient of shape %v for an output of shape %v", t.shape, r.shape)
			}
			g = t.retained()
		case count(r.shape) == 1:
			g = d.fresh(engine.Float64, r.shape)
			d.issue(func() { g.floats[0] = 1 })
		default:
			return nil, first, fmt.Errorf("engine ref: output %d of shape %v is no scalar and has no gradient", i, r.shape)
		}
		roots, first = append(roots, r.node), append(first, g)
	}
	return roots, first, nil
}

// Backward implements engine.Device.
func (d *Device) Backward(outputs, grads []engine.Tensor) error {
	w, err := d.BackwardInput(outputs, grads)
	if err != nil {
		return err
	}
	return w.Run()
}

// BackwardInput implements engine.Device.
func (d *Device) BackwardInput(outputs, grads []engine.Tensor) (engine.Work, error) {
	roots, first, err := d.seeds(outputs, grads)
	if err != nil {
		return nil, err
	}
	nodes := order(roots)
	w := &work{d: d}
	got, err := d.flow(roots, first, w)
	for _, n := range nodes {
		if g, ok := got[n]; ok {
			d.gather(n, g)
			g.release()
		}
	}
	if err != nil {
		w.Free()
		return nil, fmt.Errorf("engine ref: backward: %w", err)
	}
	for _, n := range nodes {
		if !n.leaf {
			n.forget()
		}
	}
	return w, nil
}

// Grad implements engine.Device.
func (d *Device) Grad(leaf engine.Tensor) (engine.Tensor, error) {
	r, err := tensorOf(leaf)
	if err != nil || r.node == nil || r.node.grad == nil {
		return nil, err
	}
	return d.handle(r.node.grad.retained(), nil), nil
}

// SetGrad implements engine.Device.
func (d *Device) SetGrad(leaf, grad engine.Tensor) error {
	r, err := tensorOf(leaf)
	if err != nil {
		return err
	}
	if r.node == nil || !r.node.leaf {
		return fmt.Errorf("engine ref: a tensor of shape %v is no leaf with a gradient", r.shape)
	}
	var next *value
	if grad != nil {
		g, err := tensorOf(grad)
		if err != nil {
			return err
		}
		if !slices.Equal(g.shape, r.shape) {
			return fmt.Errorf("engine ref: a gradient of shape %v for a leaf of shape %v", g.shape, r.shape)
		}
		v := g.retained()
		next = &v
	}
	if r.node.grad != nil {
		r.node.grad.release()
	}
	r.node.grad = next
	return nil
}

// NoGrad implements engine.Device.
func (d *Device) NoGrad(f func() error) error {
	before := d.tracking
	d.tracking = false
	defer func() { d.tracking = before }()
	return f()
}

// Adopt implements engine.Device.
func (d *Device) Adopt(t engine.Tensor) (engine.Tensor, error) {
	r, err := tensorOf(t)
	if err != nil {
		return nil, err
	}
	if r.freed.Swap(true) {
		return nil, fmt.Errorf("engine ref: adopt: the tensor of shape %v is freed", r.shape)
	}
	r.chargeTo(d.account)
	r.queue.Store(d.compute)
	if r.room != nil {
		to := r.memory()
		d.compute.do(func() error {
			copy(to, r.room)
			return nil
		})
	}
	mine := d.handle(r.value, nil) // the new handle takes over the old one's reference
	r.node.release()
	return mine, nil
}

// Charge implements engine.Device.
func (d *Device) Charge(t engine.Tensor) {
	if r, err := tensorOf(t); err == nil && !r.freed.Load() {
		r.chargeTo(d.account)
	}
}

// Memory implements engine.Device.
func (d *Device) Memory() engine.Memory {
	return engine.Memory{LiveBytes: d.account.live.Load(), PeakBytes: d.account.peak.Load()}
}

// ResetPeak implements engine.Device.
func (d *Device) ResetPeak() {
	d.account.peak.Store(d.account.live.Load())
	d.account.add(0) // raises the peak to what other goroutines have charged meanwhile
}

// Record implements engine.Stream.
func (d *Device) Record() engine.Event {
	if d.compute == nil {
		return engine.Past(time.Now())
	}
	return d.compute.record()
}

// Await implements engine.Stream.
func (d *Device) Await(p engine.Point) error {
	if d.compute == nil {
		return p.Wait()
	}
	d.compute.do(p.Wait)
	return nil
}

// Close implements engine.Device.
func (d *Device) Close() int {
	n := int(d.hosts.Load())
	for _, t := range d.open {
		d.own(t)
	}
	for t := range d.owned {
		if !t.freed.Load() {
			n++
			t.Free()
		}
	}
	d.open, d.marks, d.owned = nil, nil, nil
	if d.compute != nil {
		d.compute.close()
		d.copies.close()
	}
	return n
}
