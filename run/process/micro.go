package process

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// rows is the range of rows [Lo, Hi) of a micro-batch.
type rows struct{ Lo, Hi int }

func (r rows) len() int { return r.Hi - r.Lo }

func (r rows) and(o rows) rows {
	return rows{max(r.Lo, o.Lo), max(max(r.Lo, o.Lo), min(r.Hi, o.Hi))}
}

// rowsOf returns the rows of a micro-batch of n rows that a replica of a stage computes. Under round robin these are
// all rows. Under split, the k-th of r replicas, counted from 0, has the rows [k*n/r, (k+1)*n/r), with both numbers
// rounded down (DAPPLE §5.2).
func rowsOf(p *schedule.Program, pipeline int16, stage int32, replica, n int) rows {
	r := len(p.Placement[pipeline][stage])
	if p.Replication != schedule.Split || r == 1 {
		return rows{0, n}
	}
	return rows{replica * n / r, (replica + 1) * n / r}
}

// commonRows returns the rows of a micro-batch of n rows that a send carries to a replica of the other stage. These
// are the rows that both replicas compute. Rounding may leave none.
func commonRows(p *schedule.Program, send schedule.Instruction, there int16, n int) rows {
	return rowsOf(p, send.Pipeline, send.Stage, int(send.Replica),
		n).and(rowsOf(p, send.Pipeline, other(send), int(there), n))
}

// part is a range of rows of the values that cross a cut.
type part struct {
	rows
	tensors stage.Tensors
}

// box holds, by micro-batch, what was received over a cut or will be sent over it. What was received has one part for
// each replica of the other stage that computes some of the rows. What will be sent is one part.
type box map[int32][]part

func (b box) put(micro int32, p part) { b[micro] = append(b[micro], p) }

func (b box) free() {
	for micro, parts := range b {
		for _, p := range parts {
			p.tensors.Free()
		}
		delete(b, micro)
	}
}

// take removes a micro-batch from a box and joins its parts by rows.
func (b box) take(dev engine.Device, micro int32) (stage.Tensors, error) {
	parts := b[micro]
	delete(b, micro)
	switch len(parts) {
	case 0:
		return stage.Tensors{}, nil
	case 1:
		return parts[0].tensors, nil
	}
	defer func() {
		for _, p := range parts {
			p.tensors.Free()
		}
	}()
	slices.SortFunc(parts, func(a, b part) int { return a.Lo - b.Lo })
	all := stage.Tensors{}
	for v := range parts[0].tensors {
		terms := make([]engine.Tensor, len(parts))
		for i, p := range parts {
			if terms[i] = p.tensors[v]; terms[i] == nil {
				all.Free()
				return nil, fmt.Errorf("one replica has sent tensor %d of micro-batch %d, another has not", v, micro)
			}
		}
		t, err := engine.Cat(dev, terms, 0)
		if err != nil {
			all.Free()
			return nil, err
		}
		all[v] = dev.Disown(t)
	}
	return all, nil
}

// cut returns a copy of some rows of a part. If there are no rows, it returns no tensors: after rounding, two adjoining
// shares may have no row in common.
func (p part) cut(dev engine.Device, r rows) (stage.Tensors, error) {
	out := stage.Tensors{}
	if r.len() == 0 {
		return out, nil
	}
	for v, t := range p.tensors {
		c, err := copyRows(dev, t, int64(r.Lo-p.Lo), int64(r.len()))
		if err != nil {
			out.Free()
			return nil, err
		}
		out[v] = c
	}
	return out, nil
}

// copyRows returns a copy of n rows of a tensor, which outlives every scope.
func copyRows(dev engine.Device, t engine.Tensor, first, n int64) (engine.Tensor, error) {
	m := dev.Begin()
	defer dev.End(m)
	some, err := engine.Narrow(dev, t, 0, first, n)
	if err != nil {
		return nil, err
	}
	return stage.Copy(dev, some)
}
