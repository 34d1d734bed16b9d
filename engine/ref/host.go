package ref

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// host is a tensor's own memory or, on a lazy device, bytes that are copied from and to the tensor.
type host struct {
	d     *Device
	bytes []byte
	ready engine.Event
	refs  atomic.Int32
	freed atomic.Bool
	of    value
}

// unwritten fills host memory until a lazy device has copied something there. A float of such bytes is NaN.
const unwritten = 0xff

// ToHost implements engine.Device.
func (d *Device) ToHost(t engine.Tensor) (engine.Host, error) {
	r, err := tensorOf(t)
	if err != nil {
		return nil, err
	}
	h := &host{d: d, of: r.retained()}
	h.refs.Store(1)
	d.hosts.Add(1)
	if d.compute == nil {
		h.bytes, h.ready = r.memory(), engine.Past(time.Now())
		return h, nil
	}
	from := r.memory()
	h.bytes = bytes.Repeat([]byte{unwritten}, len(from))
	written := d.compute.record()
	h.refs.Add(1)
	d.copies.do(written.Wait)
	d.copies.do(func() error {
		copy(h.bytes, from)
		h.release()
		return nil
	})
	h.ready = d.copies.record()
	return h, nil
}

// FromHost implements engine.Device.
func (d *Device) FromHost(t engine.Tensor, given engine.Host) error {
	r, err := tensorOf(t)
	if err != nil {
		return err
	}
	h, ok := given.(*host)
	if !ok || h.of.storage != r.storage || !slices.Equal(h.of.shape, r.shape) {
		return fmt.Errorf("engine ref: from host: the memory is not that of the tensor of shape %v", r.shape)
	}
	if d.compute == nil {
		return nil
	}
	to := r.memory()
	h.refs.Add(1)
	d.compute.do(func() error {
		copy(to, h.bytes)
		h.release()
		return nil
	})
	return nil
}

// Ready implements engine.Host.
func (h *host) Ready() engine.Event { return h.ready }

// Bytes implements engine.Host.
func (h *host) Bytes() []byte { return h.bytes }

// Free implements engine.Host.
func (h *host) Free() {
	if !h.freed.Swap(true) {
		h.d.hosts.Add(-1)
		h.release()
	}
}

// release drops a reference. After the last one is dropped, a lazy device's bytes become invalid.
func (h *host) release() {
	if h.refs.Add(-1) != 0 {
		return
	}
	if h.d.compute != nil {
		for i := range h.bytes {
			h.bytes[i] = unwritten
		}
	}
	h.of.release()
}
