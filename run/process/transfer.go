package process

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// crossing holds what crosses the cuts of a stage, by micro-batch. A tensor is in only one box. The computation or send
// that needs the tensor takes it out, once.
type crossing struct {
	h       *holding
	inbox   box                             // received over the cut before the stage, not used yet
	forth   box                             // to send over the cut after the stage
	grads   box                             // gradients received over the cut after the stage
	back    box                             // gradients to send over the cut before the stage
	packers map[schedule.Kind]*stage.Packer // for SF and SB, if fewer bits are sent
}

func newCrossing(h *holding) crossing {
	return crossing{h: h, inbox: box{}, forth: box{}, grads: box{}, back: box{},
		packers: map[schedule.Kind]*stage.Packer{}}
}

// packer returns the Packer for a kind of send.
func (c *crossing) packer(kind schedule.Kind) *stage.Packer {
	if c.packers[kind] == nil {
		c.packers[kind] = &stage.Packer{Format: c.h.w.job.Plan.Boundary}
	}
	return c.packers[kind]
}

// abandon discards the tensors received for forwards, and those that forwards have made for other stages.
func (c *crossing) abandon() {
	c.inbox.free()
	c.forth.free()
}

func (c *crossing) close() {
	for _, b := range []box{c.inbox, c.forth, c.grads, c.back} {
		b.free()
	}
	for _, p := range c.packers {
		p.Free()
	}
}

// other returns the stage on the other side of the cut that a send crosses.
func other(send schedule.Instruction) int32 {
	if send.Kind == schedule.SB {
		return send.Stage - 1
	}
	return send.Stage + 1
}

// boxOf returns the box in which the receiver of a send puts its tensors.
func (c *crossing) boxOf(send schedule.Kind) box {
	if send == schedule.SB {
		return c.grads
	}
	return c.inbox
}

// pass hands the result of a computation to the stage on the other side of the cut. If this worker holds replicas of
// that stage, they get their tensors without a message. If other workers need some of the result, the whole result
// stays in the outbox for the send.
func (c *crossing) pass(send schedule.Instruction, made stage.Tensors) error {
	w := c.h.w
	r := w.x.now.program
	whole := w.x.now.rows(send)
	have := part{rowsOf(r, send.Pipeline, send.Stage, int(send.Replica), whole), made}
	alone := len(r.Receivers(send)) == 0
	for _, near := range w.held {
		if near.at.pipeline != c.h.at.pipeline || near.at.stage != other(send) {
			continue
		}
		if r.Replication == schedule.RoundRobin && !alone {
			continue // its only receiver is another worker
		}
		both := commonRows(r, send, near.at.replica, whole)
		if both.len() == 0 {
			continue
		}
		if alone && both == have.rows {
			near.cuts.boxOf(send.Kind).put(send.Micro, have)
			return nil
		}
		some, err := have.cut(w.dev, both)
		if err != nil {
			made.Free()
			return err
		}
		near.cuts.boxOf(send.Kind).put(send.Micro, part{both, some})
	}
	if alone {
		made.Free()
		return nil
	}
	c.outbox(send.Kind).put(send.Micro, have)
	return nil
}

// outbox returns the box from which a send takes its tensors.
func (c *crossing) outbox(send schedule.Kind) box {
	if send == schedule.SB {
		return c.back
	}
	return c.forth
}

// send sends tensors to the workers on the other side of a cut. Each gets the rows that it computes with.
func (c *crossing) send(in schedule.Instruction) (int64, error) {
	w := c.h.w
	parts := c.outbox(in.Kind)[in.Micro]
	delete(c.outbox(in.Kind), in.Micro)
	if len(parts) != 1 {
		return 0, fmt.Errorf("%d parts of micro-batch %d wait to be sent; there must be one", len(parts), in.Micro)
	}
	p := w.x.now.program
	have := parts[0]
	to := p.Receivers(in)
	d := w.mail.departs(in, to)
	total := int64(0)
	for i, k := range to {
		replica := slices.Index(p.Placement[in.Pipeline][other(in)], k)
		both := commonRows(p, in, int16(replica), w.x.now.rows(in))
		tensors := have.tensors
		if both != have.rows || len(to) > 1 {
			var err error
			if tensors, err = have.cut(w.dev, both); err != nil {
				have.tensors.Free()
				return 0, err
			}
			if i == len(to)-1 {
				have.tensors.Free()
			}
		}
		size, err := c.dispatch(in, k, tensors, d)
		if err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}

// crossed returns the numbers of the values that a message carries over a cut. Between a server and a trainer there
// is one for each parameter.
func (c *crossing) crossed(in schedule.Kind) []int {
	switch in {
	case schedule.SG, schedule.RG, schedule.SW, schedule.RW:
		numbers := make([]int, len(c.h.stage.Params.Learned))
		for i := range numbers {
			numbers[i] = i
		}
		return numbers
	}
	if in == schedule.SB || in == schedule.RF {
		return c.h.stage.In()
	}
	return c.h.stage.Out()
}

// buffers packs tensors for another worker, in the order of the values that cross the cut.
func (c *crossing) buffers(in schedule.Instruction, tensors stage.Tensors, to int) ([]wire.Buffer, error) {
	w := c.h.w
	var m []wire.Buffer
	for _, v := range c.crossed(in.Kind) {
		t := tensors[v]
		if t == nil {
			continue // a gradient that was not needed
		}
		if !w.x.now.packs(in.Kind) || !c.h.stage.Graph.IsFloat(v) {
			b, err := w.mail.buffer(v, t, to)
			if err != nil {
				wire.FreeAll(m)
				return nil, err
			}
			m = append(m, b)
			continue
		}
		bytes, scales, err := c.packer(in.Kind).Pack(w.dev, t)
		if err != nil {
			wire.FreeAll(m)
			return nil, err
		}
		for i, part := range []engine.Tensor{bytes, scales} {
			b, err := w.mail.buffer(v|i*ofScales, part, to)
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

// receive stores the tensors of the messages that a receive takes. The gate has seen these messages arrive.
func (c *crossing) receive(in schedule.Instruction) (int64, error) {
	w := c.h.w
	var size int64
	for _, came := range w.mail.messages {
		a, err := w.mail.take(came)
		if err != nil {
			return size, err
		}
		size += a.Bytes()
		got, err := c.unpack(in, a.Parts)
		if err != nil {
			return size, err
		}
		both := commonRows(w.x.now.program, came.sent, in.Replica, w.x.now.rows(in))
		if both.len() == 0 {
			got.Free()
			continue
		}
		c.boxOf(came.sent.Kind).put(in.Micro, part{both, got})
	}
	return size, nil
}

// unpack makes tensors on this worker from a message's buffers, for any carrier.
func (c *crossing) unpack(in schedule.Instruction, buffers []wire.Buffer) (stage.Tensors, error) {
	w := c.h.w
	got := stage.Tensors{}
	expected := c.crossed(in.Kind)
	for i := range buffers {
		b := &buffers[i]
		v := int(b.Value)
		var t engine.Tensor
		var err error
		if slices.Contains(expected, v&^ofScales) && got[v] == nil && (v&ofScales == 0 || w.x.now.packs(in.Kind)) {
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
	if w.x.now.packs(in.Kind) {
		if err := c.unpacked(got); err != nil {
			got.Free()
			return nil, err
		}
	}
	return got, nil
}

// dispatch sends tensors to one worker.
func (c *crossing) dispatch(in schedule.Instruction, to int, tensors stage.Tensors,
	d *delivery) (size int64, err error) {
	buffers, err := c.buffers(in, tensors, to)
	if err == nil {
		size, err = c.h.w.mail.post(in, to, buffers, d)
	} else {
		tensors.Free()
	}
	return size, err
}

// ofScales is the bit in a message's value number that marks the scales of a value's rows.
const ofScales = 1 << 31

// unpacked expands tensors that came in fewer bits. `all` has the tensors under their values' numbers, and their scales
// under the numbers with ofScales.
func (c *crossing) unpacked(all stage.Tensors) error {
	w, graph := c.h.w, c.h.stage.Graph
	for v, bytes := range all {
		if v&ofScales != 0 || !graph.IsFloat(v) {
			continue
		}
		scales := all[v|ofScales]
		if scales == nil {
			return fmt.Errorf("%s has come without scales", graph.Name(v))
		}
		t, err := stage.Unpack(w.dev, w.job.Plan.Boundary, bytes, scales, w.job.Engine.Float())
		if err != nil {
			return fmt.Errorf("%s: %w", graph.Name(v), err)
		}
		delete(all, v|ofScales)
		all[v] = t
	}
	return nil
}

// rounded returns how much rounding changed the values that this stage has sent. It omits the values that a failed
// device cannot report.
func (c *crossing) rounded() []trace.Rounded {
	var all []trace.Rounded
	for kind, packer := range c.packers {
		seen, err := packer.Seen(c.h.w.dev)
		if err != nil {
			continue
		}
		all = append(all, trace.Rounded{
			Stage: int(c.h.at.stage), Kind: kind.String(), Format: packer.Format.String(), Absolute: seen.Absolute,
			Relative: seen.Relative, Beyond: int64(seen.Beyond),
		})
	}
	return all
}
