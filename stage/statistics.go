package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
)

// Vector is a named tensor of the stage: a gradient, a buffer, a parameter or its state. The tensor still belongs to
// the stage. The holder of the vector may read and write it until the update, in the device's order.
type Vector struct {
	Name   string
	Tensor engine.Tensor
}

// Statistics holds the float buffers. Replicas average them, since each replica saw different micro-batches.
type Statistics struct {
	dev    engine.Device
	params *Params
}

// Vectors returns the float buffers in model order, for replicas to sum.
func (t *Statistics) Vectors() []Vector {
	var all []Vector
	for _, b := range t.params.Buffers {
		if b.Value.DType().IsFloat() {
			all = append(all, Vector{b.Name, b.Value})
		}
	}
	return all
}

// Average divides the summed buffers by the number of replicas.
func (t *Statistics) Average(replicas int) error {
	return t.write(func(_ int, b engine.Tensor) error { return engine.Divide(t.dev, b, float64(replicas)) })
}

// Set overwrites the buffers that Vectors lists.
func (t *Statistics) Set(by []Vector) error {
	return t.write(func(i int, b engine.Tensor) error { return engine.CopyInto(t.dev, b, by[i].Tensor) })
}

// write changes the buffers that Vectors lists. Graphs of micro-batches in flight have saved these buffers but do not
// read them.
func (t *Statistics) write(change func(i int, b engine.Tensor) error) error {
	m := t.dev.Begin()
	defer t.dev.End(m)
	for i, v := range t.Vectors() {
		b, err := engine.Unseen(t.dev, v.Tensor)
		if err == nil {
			err = change(i, b)
		}
		if err != nil {
			return fmt.Errorf("stage: buffer %s: %w", v.Name, err)
		}
	}
	return nil
}
