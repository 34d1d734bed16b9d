package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
)

// other is the stage on the far side of the cut that a send crosses.
func other(send schedule.Instruction) int32 {
	if send.Kind == schedule.SB {
		return send.Stage - 1
	}
	return send.Stage + 1
}

// boxOf is where the receiver of a send puts what comes.
func (h *holding) boxOf(send schedule.Kind) box {
	if send == schedule.SB {
		return h.grads
	}
	return h.inbox
}

// pass gives what a computation has made to the stage on the other side of the cut, as far
// as this worker holds that stage too: those tensors change hands without a message. The
// rest waits in the outbox for the send; where nobody else takes any, nothing is left.
func (w *worker) pass(h *holding, send schedule.Instruction, made stage.Tensors) error {
	r := w.x.program
	mine := rowsOf(r, send.Pipeline, send.Stage, int(send.Replica), w.rowsIn(send))
	alone := len(r.Receivers(send)) == 0
	for _, near := range w.held {
		if near.pipeline != h.pipeline || near.stage != other(send) {
			continue
		}
		if r.Replication == schedule.RoundRobin && !alone {
			continue // its one taker is elsewhere
		}
		both := mine.and(rowsOf(r, send.Pipeline, near.stage, int(near.replica), w.rowsIn(send)))
		if both.len() == 0 {
			continue
		}
		if alone && both == mine {
			near.boxOf(send.Kind).put(send.Micro, part{mine, made})
			return nil
		}
		some, err := w.cut(made, mine.Lo, both)
		if err != nil {
			made.Free()
			return err
		}
		near.boxOf(send.Kind).put(send.Micro, part{both, some})
	}
	if alone {
		made.Free()
		return nil
	}
	h.outbox(send.Kind).put(send.Micro, part{mine, made})
	return nil
}

// outbox is where what a send takes lies.
func (h *holding) outbox(send schedule.Kind) box {
	if send == schedule.SB {
		return h.back
	}
	return h.forth
}

// rowsIn is how many rows the whole micro-batch of a transfer has.
func (w *worker) rowsIn(in schedule.Instruction) int {
	if w.x.trains {
		return w.job.plan.MicroBatch
	}
	return w.job.testRows(int(in.Micro))
}

// handover is a tensor in a message: whoever has the message last adopts or frees it.
type handover struct{ tensor engine.Tensor }

// Release frees the tensor.
func (o *handover) Release() { o.tensor.Free() }

// send hands tensors to the workers on the other side of a cut, to each the rows that it
// computes with.
func (w *worker) send(h *holding, in schedule.Instruction) (int64, error) {
	parts := h.outbox(in.Kind)[in.Micro]
	delete(h.outbox(in.Kind), in.Micro)
	if len(parts) != 1 {
		return 0, fmt.Errorf("%d parts of micro-batch %d wait to be sent; there must be one", len(parts), in.Micro)
	}
	p := w.x.program
	have := parts[0]
	to := p.Receivers(in)
	total, left := int64(0), len(to)
	for i, k := range to {
		replica := slices.Index(p.Placement[in.Pipeline][other(in)], k)
		both := have.rows.and(rowsOf(p, in.Pipeline, other(in), replica, w.rowsIn(in)))
		tensors := have.tensors
		if both != have.rows || len(to) > 1 {
			var err error
			if tensors, err = w.cut(have.tensors, have.Lo, both); err != nil {
				have.tensors.Free()
				return 0, err
			}
			if i == len(to)-1 {
				have.tensors.Free()
			}
		}
		m, err := w.message(h, in, tensors)
		if err != nil {
			tensors.Free()
			return 0, err
		}
		size := m.Bytes()
		total += size
		w.x.sending(in, w, k, size, tensors, &left)
		if err := w.ep.Send(k, tagOf(in, w.x.epoch), m); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// message packs tensors in the order of the values that cross the cut.
func (w *worker) message(h *holding, in schedule.Instruction, tensors stage.Tensors) (wire.Message, error) {
	ids := h.Out()
	if in.Kind == schedule.SB {
		ids = h.In()
	}
	var m wire.Message
	for _, v := range ids {
		t := tensors[v]
		if t == nil {
			continue // a gradient that nothing needed
		}
		data, err := w.dev.View(t)
		if err != nil {
			return nil, err
		}
		m = append(m, wire.Part{Name: h.Graph.Name(v), DType: t.DType().String(), Shape: t.Shape(), Data: data, Owner: &handover{t}})
	}
	return m, nil
}

// sending notes a message that is about to leave; left is how many of the instruction's have not arrived.
func (x *process) sending(in schedule.Instruction, from *worker, to int, size int64, tensors stage.Tensors, left *int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent[delivery{tagOf(in, x.epoch), to}] = &sending{in: in, from: from, at: x.since(time.Now()), size: size, tensors: tensors, left: left}
}

// receive takes over what the gate has seen arrive.
func (w *worker) receive(h *holding, in schedule.Instruction) (int64, error) {
	p := w.x.program
	var size int64
	for _, came := range w.messages {
		sent := came.sent
		m, here := w.ep.Take(came.from, tagOf(sent, w.x.epoch))
		if !here {
			return size, fmt.Errorf("the gate says that %v has arrived, the wire that it has not", sent)
		}
		size += m.Bytes()
		got := stage.Tensors{}
		err := w.unpack(h, m, got)
		m.Release()
		whole := w.rowsIn(in)
		both := rowsOf(p, in.Pipeline, in.Stage, int(in.Replica), whole).and(rowsOf(p, sent.Pipeline, sent.Stage, int(sent.Replica), whole))
		if err != nil || both.len() == 0 {
			got.Free()
			if err != nil {
				return size, err
			}
			continue
		}
		h.boxOf(sent.Kind).put(in.Micro, part{both, got})
	}
	return size, nil
}

// unpack makes tensors of this worker's own of a message's parts.
func (w *worker) unpack(h *holding, m wire.Message, into stage.Tensors) error {
	for i := range m {
		v := h.Graph.Find(m[i].Name)
		if v < 0 {
			return fmt.Errorf("a message has a part %q, which is no tensor of this model", m[i].Name)
		}
		var t engine.Tensor
		var err error
		if o, local := m[i].Owner.(*handover); local {
			m[i].Owner = nil
			t, err = w.dev.Adopt(o.tensor)
		} else {
			t, err = w.dev.FromBytes(engine.DTypeNamed(m[i].DType), m[i].Shape, m[i].Data)
		}
		if err != nil {
			return err
		}
		into[v] = t
	}
	return nil
}
