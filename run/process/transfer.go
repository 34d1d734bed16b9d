package process

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/trace"
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
	whole := w.rowsIn(send)
	mine := rowsOf(r, send.Pipeline, send.Stage, int(send.Replica), whole)
	alone := len(r.Receivers(send)) == 0
	for _, near := range w.held {
		if near.pipeline != h.pipeline || near.stage != other(send) {
			continue
		}
		if r.Replication == schedule.RoundRobin && !alone {
			continue // its one taker is elsewhere
		}
		both := commonRows(r, send, near.replica, whole)
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
		return w.job.Plan.MicroBatch
	}
	return w.job.TestRows(int(in.Micro))
}

// send hands tensors to the workers on the other side of a cut, to each the rows that it computes with.
func (w *worker) send(h *holding, in schedule.Instruction) (int64, error) {
	parts := h.outbox(in.Kind)[in.Micro]
	delete(h.outbox(in.Kind), in.Micro)
	if len(parts) != 1 {
		return 0, fmt.Errorf("%d parts of micro-batch %d wait to be sent; there must be one", len(parts), in.Micro)
	}
	p := w.x.program
	have := parts[0]
	to := p.Receivers(in)
	d := w.departs(in, to)
	total := int64(0)
	for i, k := range to {
		replica := slices.Index(p.Placement[in.Pipeline][other(in)], k)
		both := commonRows(p, in, int16(replica), w.rowsIn(in))
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
		size, err := w.dispatch(h, in, k, tensors, d)
		if err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}

// crossed is the values that a message carries, to one side of the cut or from the other; between a server and a
// trainer one for each parameter.
func (h *holding) crossed(in schedule.Kind) []int {
	switch in {
	case schedule.SG, schedule.RG, schedule.SW, schedule.RW:
		numbers := make([]int, len(h.Params.Learned))
		for i := range numbers {
			numbers[i] = i
		}
		return numbers
	}
	if in == schedule.SB || in == schedule.RF {
		return h.In()
	}
	return h.Out()
}

// buffers packs tensors for another worker, in the order of the values that cross the cut.
func (w *worker) buffers(h *holding, in schedule.Instruction, tensors stage.Tensors, to int) ([]wire.Buffer, error) {
	var m []wire.Buffer
	for _, v := range h.crossed(in.Kind) {
		t := tensors[v]
		if t == nil {
			continue // a gradient that nothing needed
		}
		if !w.packs(in.Kind) || !h.Graph.IsFloat(v) {
			b, err := w.buffer(v, t, to)
			if err != nil {
				wire.FreeAll(m)
				return nil, err
			}
			m = append(m, b)
			continue
		}
		bytes, scales, err := h.packerOf(in.Kind, w.job.Plan.Boundary).Pack(w.dev, t)
		if err != nil {
			wire.FreeAll(m)
			return nil, err
		}
		for i, part := range []engine.Tensor{bytes, scales} {
			b, err := w.buffer(v|i*ofScales, part, to)
			if err != nil {
				bytes.Free()
				scales.Free()
				wire.FreeAll(m)
				return nil, err
			}
			m = append(m, b)
		}
	}
	return m, nil
}

// buffer packs a tensor for another worker, and owns it from then on.
func (w *worker) buffer(v int, t engine.Tensor, to int) (wire.Buffer, error) {
	b := wire.Buffer{Value: uint32(v), DType: wireType(t.DType()), Shape: t.Shape()}
	if w.port.HandsOver(to) {
		b.Ready, b.Owner = w.dev.Record(), t
	} else {
		host, err := w.dev.ToHost(t)
		if err != nil {
			return b, err
		}
		t.Free()
		b.Ready, b.Data, b.Owner = host.Ready(), host.Bytes(), host
	}
	if !w.job.waits(waitSent) {
		b.Ready = nil
	}
	return b, nil
}

// wireType is an element type as the wire numbers it.
func wireType(d engine.DType) wire.DType { return wire.DTypeOf(d.String()) }

// arrival gives out a message of the wire's that the gate has seen arrive.
func (w *worker) arrival(sent schedule.Instruction, from int) (wire.Arrival, error) {
	edge, known := w.x.table.Find(wire.Name{From: from, To: w.rank})
	if known {
		w.x.credits(edge, 1)
		if a, here := w.port.Take(edge, uint64(sent.Key())); here {
			return a, nil
		}
	}
	return wire.Arrival{}, fmt.Errorf("the gate says that %v has arrived, the wire that it has not", sent)
}

// receive takes over what the gate has seen arrive.
func (w *worker) receive(h *holding, in schedule.Instruction) (int64, error) {
	var size int64
	for _, came := range w.messages {
		a, err := w.arrival(came.sent, came.from)
		if err != nil {
			return size, err
		}
		size += a.Bytes()
		got, err := w.unpack(h, in, a.Parts)
		if err != nil {
			return size, err
		}
		both := commonRows(w.x.program, came.sent, in.Replica, w.rowsIn(in))
		if both.len() == 0 {
			got.Free()
			continue
		}
		h.boxOf(came.sent.Kind).put(in.Micro, part{both, got})
	}
	return size, nil
}

// unpack makes tensors of this worker's own of a message's buffers, whichever carrier they came over.
func (w *worker) unpack(h *holding, in schedule.Instruction, buffers []wire.Buffer) (stage.Tensors, error) {
	got := stage.Tensors{}
	expected := h.crossed(in.Kind)
	for i := range buffers {
		b := &buffers[i]
		v := int(b.Value)
		var t engine.Tensor
		var err error
		if slices.Contains(expected, v&^ofScales) && got[v] == nil && (v&ofScales == 0 || w.packs(in.Kind)) {
			t, err = w.dev.Adopt(tensorOf(b))
			b.Owner = nil
		} else {
			err = fmt.Errorf("a message has a tensor %d, which does not cross this cut", v)
		}
		if err != nil {
			got.Free()
			wire.FreeAll(buffers)
			return nil, err
		}
		got[v] = t
	}
	if w.packs(in.Kind) {
		if err := w.unpacked(h, got); err != nil {
			got.Free()
			return nil, err
		}
	}
	return got, nil
}

// drop throws away what came for a step that is begun anew.
func (w *worker) drop() error {
	for _, m := range w.messages {
		a, err := w.arrival(m.sent, m.from)
		if err != nil {
			return err
		}
		wire.FreeAll(a.Parts)
	}
	return nil
}

// give sends gradients to the server, or weights from it.
func (w *worker) give(h *holding, in schedule.Instruction) (int64, error) {
	given := h.Gradients.Give
	if in.Kind == schedule.SW {
		given = h.Params.Copies
		h.reads[in.Micro] = h.applied
	}
	tensors, err := given()
	if err != nil {
		return 0, err
	}
	to := w.x.program.Receivers(in)[0]
	d := w.departs(in, []int{to})
	return w.dispatch(h, in, to, tensors, d)
}

// fetchServed takes gradients at the server, or weights from it.
func (w *worker) fetchServed(h *holding, in schedule.Instruction) (int64, error) {
	a, err := w.arrival(w.messages[0].sent, w.messages[0].from)
	if err != nil {
		return 0, err
	}
	size := a.Bytes()
	got, err := w.unpack(h, in, a.Parts)
	if err != nil {
		return size, err
	}
	if in.Kind == schedule.RG {
		return size, h.Gradients.Take(got)
	}
	return size, h.TakeWeights(got)
}

// departs notes that a send is on its way.
func (w *worker) departs(in schedule.Instruction, to []int) *delivery {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range to {
		if x.workers[k] != nil {
			x.flying++
		}
	}
	return &delivery{w: w, in: in, at: x.since(time.Now()), left: len(to)}
}

// dispatch sends tensors to one worker.
func (w *worker) dispatch(h *holding, in schedule.Instruction, to int, tensors stage.Tensors,
	d *delivery) (size int64, err error) {
	buffers, err := w.buffers(h, in, tensors, to)
	if err != nil {
		tensors.Free()
		return 0, err
	}
	for i := range buffers {
		size += buffers[i].Bytes()
	}
	edge, known := w.x.table.Find(wire.Name{From: w.rank, To: to})
	if !known {
		tensors.Free()
		return 0, fmt.Errorf("no edge to worker %d", to)
	}
	step := uint32(w.x.base + w.x.program.MinibatchOf(in))
	return size, w.port.Send(edge, uint64(in.Key()), step, buffers, func(err error) { d.sent(size, err) })
}

// What stages on different workers send each other in training may have fewer bits than what they compute with
// (plan.Plan.Boundary). It is packed as it is sent and unpacked as it is received; what changes hands on one worker is
// not. Nor is what an evaluation sends: its result is of the weights alone.

// packs says whether floats of a message are packed.
func (w *worker) packs(kind schedule.Kind) bool {
	switch kind {
	case schedule.SF, schedule.RF, schedule.SB, schedule.RB:
		return w.x.trains && w.job.Plan.Boundary.Packs()
	}
	return false
}

// ofScales marks, in a message, the scales of a value's rows.
const ofScales = 1 << 31

// unpacked has tensors that came in fewer bits have as many again: those of all, under their values' numbers and their
// scales' ones.
func (w *worker) unpacked(h *holding, all stage.Tensors) error {
	for v, bytes := range all {
		if v&ofScales != 0 || !h.Graph.IsFloat(v) {
			continue
		}
		scales := all[v|ofScales]
		if scales == nil {
			return fmt.Errorf("%s has come without scales", h.Graph.Name(v))
		}
		t, err := stage.Unpack(w.dev, w.job.Plan.Boundary, bytes, scales, w.job.Engine.Float())
		if err != nil {
			return fmt.Errorf("%s: %w", h.Graph.Name(v), err)
		}
		delete(all, v|ofScales)
		all[v] = t
	}
	return nil
}

// allRounded is by how much what this worker has sent differed from what it had. A device that has failed says nothing.
func (w *worker) allRounded() []trace.Rounded {
	var all []trace.Rounded
	for p, h := range w.held {
		for kind, packer := range h.packers {
			seen, err := packer.Seen(w.dev)
			if err != nil {
				continue
			}
			all = trace.JoinRounded(all, []trace.Rounded{{
				Stage: int(p.stage), Kind: kind.String(), Format: packer.Format.String(), Absolute: seen.Absolute,
				Relative: seen.Relative, Beyond: int64(seen.Beyond),
			}})
		}
	}
	return all
}
