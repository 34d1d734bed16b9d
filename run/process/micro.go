package process

import (
	"fmt"
	"github.com/millrace-ml/millrace/data"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// rows is a run of rows of a micro-batch, Hi left out.
type rows struct{ Lo, Hi int }

func (r rows) len() int { return r.Hi - r.Lo }

func (r rows) and(o rows) rows {
	return rows{max(r.Lo, o.Lo), max(max(r.Lo, o.Lo), min(r.Hi, o.Hi))}
}

// rowsOf is the part of a micro-batch of n rows that a replica of a stage computes: all of it
// under round robin; under split, of r replicas the k-th has the rows from k n/r to
// (k+1) n/r, rounded down (DAPPLE §5.2).
func rowsOf(p *schedule.Program, pipeline int16, stage int32, replica, n int) rows {
	r := len(p.Placement[pipeline][stage])
	if p.Replication != schedule.Split || r == 1 {
		return rows{0, n}
	}
	return rows{replica * n / r, (replica + 1) * n / r}
}

// commonRows is the rows of a micro-batch of n that a send gives to a replica of the stage on the other side:
// those that both compute. Rounding may leave none.
func commonRows(p *schedule.Program, send schedule.Instruction, there int16, n int) rows {
	return rowsOf(p, send.Pipeline, send.Stage, int(send.Replica),
		n).and(rowsOf(p, send.Pipeline, other(send), int(there), n))
}

// part is a run of rows of the values that cross a cut.
type part struct {
	rows
	tensors stage.Tensors
}

// box is what has come across a cut, by micro-batch: one part, or as many as the stage on
// the other side has replicas with rows of it.
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
func (w *worker) take(b box, micro int32) (stage.Tensors, error) {
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
		t, err := engine.Cat(w.dev, terms, 0)
		if err != nil {
			all.Free()
			return nil, err
		}
		all[v] = w.dev.Disown(t)
	}
	return all, nil
}

// cut copies some rows of tensors whose first row is `first`, to own. Of no rows it is
// nothing: of replicas whose shares meet, rounding may leave no row to both.
func (w *worker) cut(tensors stage.Tensors, first int, r rows) (stage.Tensors, error) {
	out := stage.Tensors{}
	if r.len() == 0 {
		return out, nil
	}
	for v, t := range tensors {
		c, err := w.copyRows(t, int64(r.Lo-first), int64(r.len()))
		if err != nil {
			out.Free()
			return nil, err
		}
		out[v] = c
	}
	return out, nil
}

// copyRows is a copy of some rows of a tensor, outside of every scope.
func (w *worker) copyRows(t engine.Tensor, first, n int64) (engine.Tensor, error) {
	m := w.dev.Begin()
	defer w.dev.End(m)
	some, err := engine.Narrow(w.dev, t, 0, first, n)
	if err != nil {
		return nil, err
	}
	return stage.Copy(w.dev, some)
}

// micro is the micro-batch of an instruction, or the slice of it that its replica computes.
func (w *worker) micro(in schedule.Instruction) stage.Micro {
	perStep := w.x.program.MicroBatches / w.x.program.Period
	r := rowsOf(w.x.program, in.Pipeline, in.Stage, int(in.Replica), w.job.Plan.MicroBatch)
	return stage.Micro{
		ID: int(in.Micro), Step: w.job.BatchOf(w.x.base+int(in.Micro)/perStep,
			in.Pipeline), Index: int(in.Micro) % perStep, FirstRow: r.Lo, Rows: r.len(),
	}
}

// share is what a micro-batch's mean loss counts for in its step's.
func (w *worker) share(m stage.Micro) float64 {
	return float64(m.Rows) / float64(w.job.Plan.Batch()*w.job.Together())
}

// weight is what a micro-batch's mean loss is differentiated with: its rows over those of its minibatch.
// Where an update covers several minibatches each stage divides by their number itself (stepOf), because
// stages of other numbers of replicas cover others with the same gradients.
func (w *worker) weight(m stage.Micro) float64 {
	return float64(m.Rows) / float64(w.job.Plan.Batch())
}

// feed adds to given the model inputs that a stage reads.
func (w *worker) feed(h *holding, given stage.Tensors, split data.Split, step, batch, first, rows int) error {
	feeds := h.Feeds()
	if len(feeds) == 0 {
		return nil
	}
	b, err := split.Batch(step, batch, first, rows)
	if err != nil {
		return err
	}
	for _, v := range feeds {
		t, err := stage.TensorOf(w.dev, w.job.Engine.Float(), b, h.Graph.Name(v))
		if err != nil {
			return fmt.Errorf("%s: %w", h.Graph.Name(v), err)
		}
		given[v] = t
	}
	return nil
}
