package ref

import (
	"bytes"

	"github.com/millrace-ml/millrace/engine"
)

// Room implements engine.Device. On a lazy device it returns host memory, and Adopt issues the copy.
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
