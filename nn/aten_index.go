package nn

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// CallError says that an operator of an imported network failed.
type CallError struct {
	op, where string
	err       error
}

func (e *CallError) Error() string { return fmt.Sprintf("%s in %s: %v", e.op, e.where, e.err) }
func (e *CallError) Unwrap() error { return e.err }

// ShapeError says that an operator returned a shape other than the one recorded in the network's file.
type ShapeError struct {
	shape    []int64
	rows     int64
	recorded []int64
	example  int64
}

func (e *ShapeError) Error() string {
	return fmt.Sprintf("it yields the shape %v with %d rows, and %v is recorded with %d; export the network again",
		e.shape, e.rows, e.recorded, e.example)
}

// IndexError says that a call got an index out of range. Either the data or the network is wrong.
type IndexError struct {
	Least, Greatest int64 // smallest and largest index in the call
	From, To        int64 // range that the call accepts
	err             error
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("its indices are %d to %d, and it takes %d to %d; look at the data that they are made of: %v",
		e.Least, e.Greatest, e.From, e.To, e.err)
}

func (e *IndexError) Unwrap() error { return e.err }

// explained returns an IndexError if the failed call has an index out of range, and otherwise err.
func (r *tracing) explained(c *rules.Call, err error) error {
	x, is := rules.IndexedBy(c.Op)
	if !is || max(x.Index, x.Of) >= len(c.In) {
		return err
	}
	number := func(arg int) (int64, bool) {
		if arg >= len(c.In) {
			return 0, false
		}
		v, failed := r.argument(c.In[arg])
		n, is := v.(int64)
		return n, is && failed == nil
	}
	if !x.Listed {
		dim := func(rank int) int { return x.DimOf(rank, number) }
		return r.outside(c, x, c.In[x.Index], dim, x.Skipped(number), err)
	}
	for d, of := range c.In[x.Index].List {
		bad := r.outside(c, x, of, func(rank int) int { return min(d, rank-1) }, nil, err)
		if errors.As(bad, new(*IndexError)) {
			return bad
		}
	}
	return err
}

// outside returns an IndexError if an index of the call is out of range, and otherwise err.
func (r *tracing) outside(c *rules.Call, x rules.Indexed, index rules.Operand, dimOf func(rank int) int, skip *int64,
	err error) error {
	of, _ := r.tensorOf(c.In[x.Of])
	at, _ := r.tensorOf(index)
	if of == nil || at == nil || at.DType().IsFloat() {
		return err
	}
	dim := dimOf(len(of.Shape()))
	if dim < 0 {
		return err
	}
	r.err = nil
	if skip != nil { // the index that the operator ignores is replaced by 0
		at = r.call("aten::masked_fill.Scalar", at, r.call("aten::eq.Scalar", at, *skip), int64(0))
	}
	ends := [2]int64{}
	for i, op := range []string{"aten::min", "aten::max"} {
		end := r.call(op, at)
		if r.err != nil {
			return err
		}
		v, failed := r.dev.Item(end)
		if failed != nil {
			return err
		}
		ends[i] = int64(v)
	}
	least, most := x.Range(of.Shape()[dim])
	if ends[0] >= least && ends[1] <= most {
		return err
	}
	return &IndexError{ends[0], ends[1], least, most, err}
}

func (r *tracing) tensorOf(o rules.Operand) (tensor, error) {
	v, err := r.argument(o)
	t, _ := v.(tensor)
	return t, err
}
