package run

import (
	"fmt"
	"math"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/run/stage"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire"
)

// LossError is a loss that is not finite.
type LossError struct {
	Step, Stage, Micro int
	Value              float64
}

func (e *LossError) Error() string {
	return fmt.Sprintf("the loss of step %d, micro-batch %d is %v on stage %d; lower the learning rate or clip gradients", e.Step, e.Micro, e.Value, e.Stage)
}

// execute does what an instruction says, or begins what goes on beside the worker, and
// returns the bytes it moved. The worker does not hold mu.
func (w *worker) execute(in schedule.Instruction) (int64, error) {
	if in.Kind == schedule.DR {
		return 0, nil
	}
	h := w.held[placeOf(in)]
	if h == nil {
		return 0, fmt.Errorf("this worker does not hold the stage")
	}
	switch in.Kind {
	case schedule.F:
		return 0, w.forward(h, in)
	case schedule.B:
		return 0, w.backward(h, in)
	case schedule.EV:
		return 0, w.evaluate(h, in)
	case schedule.SF:
		return w.send(h, in, take(h.outbox, in.Micro))
	case schedule.SB:
		return w.send(h, in, take(h.back, in.Micro))
	case schedule.RF:
		return w.receive(h, in, h.inbox)
	case schedule.RB:
		return w.receive(h, in, h.grads)
	case schedule.AR:
		return 0, w.allReduce(h, in)
	case schedule.TG:
		return 0, w.sumTied(h, in)
	case schedule.GN:
		return 0, w.norm(h, in)
	case schedule.U:
		return 0, w.update(h, in)
	case schedule.CK:
		return 0, w.job.save(h)
	}
	return 0, fmt.Errorf("this runtime does not execute %v; it keeps backward passes whole (B)", in.Kind)
}

// micro is the micro-batch of an instruction.
func (w *worker) micro(in schedule.Instruction) stage.Micro {
	perStep := w.x.program.MicroBatches / w.x.program.Period
	rows := w.job.plan.MicroBatch
	return stage.Micro{
		ID: int(in.Micro), Step: w.x.base + int(in.Micro)/perStep, Index: int(in.Micro) % perStep, Rows: rows,
	}
}

func (w *worker) forward(h *holding, in schedule.Instruction) error {
	m := w.micro(in)
	given := take(h.inbox, in.Micro)
	if err := w.feed(h, given, w.job.data.Train, m.Step, w.job.plan.Batch(), m.Index*m.Rows, m.Rows); err != nil {
		given.Free()
		return err
	}
	out, loss, err := h.Forward(m, given)
	if err != nil {
		return err
	}
	w.open++
	w.peak = max(w.peak, w.open)
	h.outbox[in.Micro] = out
	if h.HoldsLoss() {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return &LossError{Step: m.Step, Stage: int(in.Stage), Micro: m.Index, Value: loss}
		}
		w.x.mu.Lock()
		w.x.record.loss(m.Step, m.Index, loss*w.weight(m))
		w.x.mu.Unlock()
		return nil
	}
	if next := w.beside(in, schedule.SF); next != nil {
		next.inbox[in.Micro] = take(h.outbox, in.Micro)
	}
	return nil
}

// weight is the micro-batch's part of the step's batch.
func (w *worker) weight(m stage.Micro) float64 {
	return float64(m.Rows) / float64(w.job.plan.Batch())
}

func (w *worker) backward(h *holding, in schedule.Instruction) error {
	back, err := h.Backward(int(in.Micro), take(h.grads, in.Micro), w.weight(w.micro(in)))
	if err != nil {
		return err
	}
	w.open--
	h.back[in.Micro] = back
	if in.Stage == 0 {
		take(h.back, in.Micro).Free()
	} else if before := w.beside(in, schedule.SB); before != nil {
		before.grads[in.Micro] = take(h.back, in.Micro)
	}
	return nil
}

// beside is the stage on the other side of a cut where this worker holds it too, so that
// tensors change hands without a message; nil where they go over the wire.
func (w *worker) beside(in schedule.Instruction, send schedule.Kind) *holding {
	in.Kind = send
	if len(w.x.program.Receivers(in)) > 0 {
		return nil
	}
	other := in.Stage + 1
	if send == schedule.SB {
		other = in.Stage - 1
	}
	for p, h := range w.held {
		if p.pipeline == in.Pipeline && p.stage == other {
			return h
		}
	}
	return nil
}

func (w *worker) evaluate(h *holding, in schedule.Instruction) error {
	first := int(in.Micro) * w.job.plan.MicroBatch
	rows := min(w.job.plan.MicroBatch, w.job.evalRows-first)
	m := stage.Micro{ID: int(in.Micro), Step: w.x.base, Index: int(in.Micro), Rows: rows}
	given := take(h.inbox, in.Micro)
	if err := w.feed(h, given, w.job.data.Test, 0, w.job.evalRows, first, rows); err != nil {
		given.Free()
		return err
	}
	out, loss, correct, err := h.Evaluate(m, given)
	if err != nil {
		return err
	}
	h.outbox[in.Micro] = out
	if h.HoldsLoss() {
		w.job.evaluated(m.Index, rows, loss, correct)
	} else if next := w.beside(in, schedule.SF); next != nil {
		next.inbox[in.Micro] = take(h.outbox, in.Micro)
	}
	return nil
}

func (w *worker) update(h *holding, in schedule.Instruction) error {
	step := w.x.base + int(in.Micro)
	if n := len(w.x.program.Placement[in.Pipeline][in.Stage]); n > 1 {
		if err := h.AverageStatistics(n); err != nil {
			return err
		}
	}
	err := h.Update(w.job.optimizer, optim.Step{Count: step + 1, Rate: w.job.rate.At(step), GradScale: h.scale})
	h.scale = 1
	return err
}

// handover is a tensor in a message: whoever has the message last adopts or frees it.
type handover struct{ tensor engine.Tensor }

// Release frees the tensor.
func (o *handover) Release() { o.tensor.Free() }

// send hands tensors to the workers on the other side of a cut.
func (w *worker) send(h *holding, in schedule.Instruction, tensors stage.Tensors) (int64, error) {
	to := w.x.program.Receivers(in)
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
			tensors.Free()
			return 0, err
		}
		m = append(m, wire.Part{Name: h.Graph.Name(v), DType: t.DType().String(), Shape: t.Shape(), Data: data, Owner: &handover{t}})
	}
	size := m.Bytes()
	w.x.sending(in, w.rank, to, size, tensors)
	for i, r := range to {
		if i > 0 {
			return 0, fmt.Errorf("%d workers take it; this runtime gives a micro-batch to one replica", len(to))
		}
		if err := w.ep.Send(r, tagOf(in, w.x.epoch), m); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// sending notes messages that are about to leave.
func (x *executor) sending(in schedule.Instruction, from int, to []int, size int64, tensors stage.Tensors) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.since(time.Now())
	for _, r := range to {
		x.flying++
		x.sent[delivery{tagOf(in, x.epoch), r}] = sending{in: in, from: from, at: now, size: size, tensors: tensors}
	}
}

// receive takes over what the Gate has seen arrive.
func (w *worker) receive(h *holding, in schedule.Instruction, box map[int32]stage.Tensors) (int64, error) {
	var size int64
	var err error
	got := stage.Tensors{}
	w.x.program.Expected(in, func(sent schedule.Instruction, from int) bool {
		m, here := w.ep.Take(from, tagOf(sent, w.x.epoch))
		if !here {
			err = fmt.Errorf("the gate says that %v has arrived, the wire that it has not", sent)
			return false
		}
		size += m.Bytes()
		err = w.unpack(h, m, got)
		m.Release()
		return err == nil
	})
	if err != nil {
		got.Free()
		return 0, err
	}
	box[in.Micro] = got
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
			t, err = w.dev.FromBytes(dtypeOf(m[i].DType), m[i].Shape, m[i].Data)
		}
		if err != nil {
			return err
		}
		into[v] = t
	}
	return nil
}

// dtypeOf is the element type of a name on the wire; 0 for one the engine will refuse.
func dtypeOf(name string) engine.DType {
	for _, d := range []engine.DType{engine.Float32, engine.Float64, engine.Int64, engine.Uint8, engine.Bool} {
		if d.String() == name {
			return d
		}
	}
	return 0
}
