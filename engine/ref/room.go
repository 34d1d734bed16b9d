package ref

import (
	"bytes"

	"github.com/millrace-ml/millrace/engine"
)

// Room implements engine.Device. On a lazy device the caller fills separate host memory, and Adopt copies it into the
// tensor.
func (d *Device) Room(dtype engine.DType, shape []int64) (engine.Tensor, []byte, error) {
	if err := sane(dtype, shape); err != nil {
		return nil, nil, err
	}
	t := &Tensor{value: d.fresh(dtype, shape), owned: true}
	if d.compute == nil {
		return t, t.memory(), nil
	}
	t.room = bytes.Repeat([]byte{unwritten}, int(t.Bytes()))
	return t, t.room, nil
}
