package process

import (
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/wire"
)

// mailbox is a worker's end of the wire. A receive takes each message once, after the gate has seen it arrive.
type mailbox struct {
	w        *worker
	port     *wire.Port
	messages []incoming // the messages that the current receive takes
	dropping bool       // the receive discards its messages
}

// incoming is a message that a receive takes.
type incoming struct {
	sent schedule.Instruction
	from int
}

// expects records the messages that the next receive takes, and whether it discards them. The caller holds the
// process's mu.
func (m *mailbox) expects(l *machine.Local) {
	m.dropping, m.messages = l.Dropping(), m.messages[:0]
	l.Messages(func(sent schedule.Instruction, from int) bool {
		m.messages = append(m.messages, incoming{sent, from})
		return true
	})
}

// take removes a message from the wire. The gate has seen it arrive.
func (m *mailbox) take(came incoming) (wire.Arrival, error) {
	edge, known := m.w.x.ends.table.Find(wire.Name{From: came.from, To: m.w.rank})
	if known {
		m.w.x.ends.credits(edge, 1)
		if a, here := m.port.Take(edge, uint64(came.sent.Key())); here {
			return a, nil
		}
	}
	return wire.Arrival{}, fmt.Errorf("the gate says that %v has arrived, the wire that it has not", came.sent)
}

// drop discards the messages of a step that is begun again.
func (m *mailbox) drop() error {
	for _, came := range m.messages {
		a, err := m.take(came)
		if err != nil {
			return err
		}
		wire.FreeAll(a.Parts)
	}
	return nil
}

// buffer packs a tensor for another worker: the tensor itself if memory can change hands, otherwise a copy in host
// memory. The buffer then owns the tensor or its copy.
func (m *mailbox) buffer(v int, t engine.Tensor, to int) (wire.Buffer, error) {
	b := wire.Buffer{Value: uint32(v), DType: wireType(t.DType()), Shape: t.Shape()}
	if m.port.HandsOver(to) {
		b.Ready, b.Owner = m.w.dev.Record(), t
	} else {
		host, err := m.w.dev.ToHost(t)
		if err != nil {
			return b, err
		}
		t.Free()
		b.Ready, b.Data, b.Owner = host.Ready(), host.Bytes(), host
	}
	if !m.w.job.waits(waitSent) {
		b.Ready = nil
	}
	return b, nil
}

// wireType converts an element type to the wire's type.
func wireType(d engine.DType) wire.DType { return wire.DTypeOf(d.String()) }

// departs records that a send has begun.
func (m *mailbox) departs(in schedule.Instruction, to []int) *delivery {
	x := m.w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range to {
		if x.crew.workers[k] != nil {
			x.activity.flying++
		}
	}
	return &delivery{w: m.w, in: in, at: x.ledger.since(time.Now()), left: len(to)}
}

// post sends buffers to a worker. The wire owns them from then on.
func (m *mailbox) post(in schedule.Instruction, to int, buffers []wire.Buffer, d *delivery) (size int64, err error) {
	for i := range buffers {
		size += buffers[i].Bytes()
	}
	x := m.w.x
	edge, known := x.ends.table.Find(wire.Name{From: m.w.rank, To: to})
	if !known {
		wire.FreeAll(buffers)
		return 0, fmt.Errorf("no edge to worker %d", to)
	}
	return size, m.port.Send(edge, uint64(in.Key()), uint32(x.now.stepOf(in)), buffers,
		func(err error) { d.sent(size, err) })
}

// delivery is a send in progress. It has one message for each receiver.
type delivery struct {
	w    *worker
	in   schedule.Instruction
	at   time.Duration
	left int // messages that are not complete
}

// sent records that a message is complete, or has failed. The send is complete when all of its messages are.
func (d *delivery) sent(size int64, err error) {
	x := d.w.x
	if err != nil {
		x.fail(d.w.rank, d.w.failed(d.in, err))
		return
	}
	x.guarded(d.w.rank, d.in, func() {
		x.activity.moved = time.Now()
		x.ledger.note(record.Event{Worker: d.w.rank, In: d.in, Ready: d.at, Start: d.at,
			End: x.ledger.since(x.activity.moved), Bytes: size})
		if d.left--; d.left == 0 {
			d.w.did(d.in)
		}
		x.checkStall()
	})
}
