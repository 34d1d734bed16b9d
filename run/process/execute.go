package process

import (
	"fmt"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// execute carries out an instruction. If part of the work runs beside the worker, execute only starts that part. It
// returns the bytes that a transfer moved, and 0 for other instructions. The worker does not hold mu.
func (w *worker) execute(in schedule.Instruction) (int64, error) {
	if in.Kind == schedule.DR {
		return 0, nil
	}
	h := w.held[w.x.now.positionOf(in)]
	if h == nil {
		return 0, fmt.Errorf("this worker does not hold the stage")
	}
	switch in.Kind {
	case schedule.F:
		return 0, h.forward(in)
	case schedule.B, schedule.I:
		return 0, h.backward(in)
	case schedule.W:
		return 0, h.backwardWeight(in)
	case schedule.EV:
		return 0, h.evaluate(in)
	case schedule.SF, schedule.SB:
		return h.cuts.send(in)
	case schedule.RF, schedule.RB:
		if w.mail.dropping {
			return 0, w.mail.drop()
		}
		return h.cuts.receive(in)
	case schedule.SG, schedule.SW:
		return h.served.give(in)
	case schedule.RG, schedule.RW:
		return h.served.take(in)
	case schedule.AR:
		return 0, h.replicas.allReduce(in)
	case schedule.TG:
		return 0, h.sumTied(in)
	case schedule.GN:
		return 0, h.norm(in)
	case schedule.U:
		return 0, h.updates.update(in)
	case schedule.UR:
		return 0, w.aside.move(h, in)
	case schedule.PV:
		if err := h.updates.validate(in); err != nil {
			return 0, err
		}
		return 0, w.caughtUp() // so that the step's mark comes after the step's update
	case schedule.CK:
		return 0, h.save(in)
	}
	return 0, fmt.Errorf("this runtime does not execute %v", in.Kind)
}

// holding is a stage on a worker, with its messages in both directions.
type holding struct {
	w        *worker
	at       position
	stage    *stage.Stage
	first    int      // version of the weights at the beginning of the current Program
	cuts     crossing // the tensors that cross its borders
	losses   losses   // holds the losses of its forwards
	lending  lending  // host memory lent to sums beside the worker
	replicas replicas // sums its gradients over the replicas
	turns    turns    // the order of its collectives
	updates  updating // updates its parameters
	moving   moving   // state of a reference that is kept beside the pipelines
	served   serving  // only if one worker has the weights (asp)
}

func newHolding(w *worker, s *stage.Stage, at position) *holding {
	h := &holding{w: w, at: at, stage: s, turns: turns{}, lending: lending{w: w}}
	h.cuts, h.losses, h.replicas = newCrossing(h), losses{h: h}, replicas{h: h}
	h.updates, h.served = updating{h: h, scale: 1}, serving{h: h, reads: map[int32]int{}}
	return h
}

// begin prepares the stage for a Program that is about to start.
func (h *holding) begin(p *schedule.Program) error {
	h.first, h.moving.seen = h.stage.Versions.Newest(), 0
	h.served.begin()
	return h.replicas.joins(p)
}

func (h *holding) close() {
	h.cuts.close()
	h.losses.abandon()
	h.lending.close()
	h.updates.close()
	h.stage.Close()
}

func (h *holding) forward(in schedule.Instruction) error {
	w := h.w
	m := w.x.now.micro(in)
	var frees int
	m.Version, frees = h.use(in)
	given, err := h.cuts.inbox.take(w.dev, in.Micro)
	if err == nil {
		err = h.feed(given, w.job.Train, m.Step, w.job.Plan.Batch(), m.Index*w.job.Plan.MicroBatch+m.FirstRow, m.Rows)
	}
	if err != nil {
		given.Free()
		return err
	}
	out, loss, err := h.stage.Forward(m, given)
	if err != nil {
		return err
	}
	w.open++
	w.peak = max(w.peak, w.open)
	if loss != nil {
		h.losses.add(in, m, loss)
	}
	if err := h.cuts.pass(asKind(in, schedule.SF), out); err != nil {
		return err
	}
	return h.dropped(frees)
}

// backward executes a whole backward. For an I instruction it executes only the half that computes the gradient of the
// stage's input.
func (h *holding) backward(in schedule.Instruction) error {
	w := h.w
	given, err := h.cuts.grads.take(w.dev, in.Micro)
	if err != nil {
		return err
	}
	_, frees := h.use(in)
	half := h.stage.Backward
	if in.Kind == schedule.I {
		half = h.stage.BackwardInput
	}
	after := h.replicas.sumDuring(in)
	defer after()
	back, err := half(int(in.Micro), given, w.x.now.weight(w.x.now.micro(in)))
	if err != nil {
		return err
	}
	if in.Kind == schedule.B {
		w.open--
	}
	if w.x.now.program.Settled(in) { // under asp, a trainer's part of the step, with its loss, is now complete
		if err := h.losses.read(in); err != nil {
			return err
		}
	}
	if err := h.cuts.pass(asKind(in, schedule.SB), back); err != nil {
		return err
	}
	return h.dropped(frees)
}

// backwardWeight executes the half of a backward that computes the gradients of the weights.
func (h *holding) backwardWeight(in schedule.Instruction) error {
	_, frees := h.use(in)
	after := h.replicas.sumDuring(in)
	defer after()
	if err := h.stage.BackwardWeight(int(in.Micro)); err != nil {
		return err
	}
	h.w.open--
	return h.dropped(frees)
}

// dropped drops a version of the weights; -1 means none.
func (h *holding) dropped(version int) error {
	if version < 0 {
		return nil
	}
	return h.stage.Drop(version)
}

// use returns the version of the weights that instruction `in` reads or makes. `frees` is the version that the
// instruction frees; -1 means none.
func (h *holding) use(in schedule.Instruction) (version, frees int) {
	if h.w.agenda.uses == nil {
		return h.stage.Versions.Newest(), -1
	}
	u, found := h.w.agenda.next(in)
	if !found {
		panic(fmt.Sprintf("run: worker %d executes %v, which the program does not say to use weights", h.w.rank, in))
	}
	if u.Frees < 0 {
		return h.first + u.Version, -1
	}
	return h.first + u.Version, h.first + u.Frees
}

// feed adds to `given` the model inputs that a stage reads.
func (h *holding) feed(given stage.Tensors, split data.Split, step, batch, first, rows int) error {
	feeds := h.stage.Feeds()
	if len(feeds) == 0 {
		return nil
	}
	b, err := split.Batch(step, batch, first, rows)
	if err != nil {
		return err
	}
	for _, v := range feeds {
		t, err := stage.TensorOf(h.w.dev, h.w.job.Engine.Float(), b, h.stage.Graph.Name(v))
		if err != nil {
			return fmt.Errorf("%s: %w", h.stage.Graph.Name(v), err)
		}
		given[v] = t
	}
	return nil
}

func asKind(in schedule.Instruction, k schedule.Kind) schedule.Instruction {
	in.Kind = k
	return in
}

func (h *holding) evaluate(in schedule.Instruction) error {
	w := h.w
	rows := w.job.TestRows(int(in.Micro))
	if in.Micro == int32(in.Replica) { // this replica's first micro-batch
		if err := h.measureApart(); err != nil {
			return err
		}
	}
	m := stage.Micro{ID: int(in.Micro), Step: w.x.now.base, Index: int(in.Micro), Rows: rows}
	given, err := h.cuts.inbox.take(w.dev, in.Micro)
	if err == nil {
		err = h.feed(given, w.job.Tests.Data, 0, w.job.Tests.Rows, m.Index*w.job.Plan.MicroBatch, rows)
	}
	if err != nil {
		given.Free()
		return err
	}
	out, scores, err := h.stage.Evaluate(m, given)
	if err != nil {
		return err
	}
	if h.stage.HoldsLoss() {
		tested, err := w.tested(scores)
		scores.Free()
		if err != nil {
			return err
		}
		if !isFinite(tested.Loss) {
			return &LossError{Step: w.x.now.base - 1, Stage: int(in.Stage), Micro: m.Index, Value: tested.Loss, Evaluation: true}
		}
		tested.Index, tested.Rows = m.Index, rows
		w.x.mu.Lock()
		w.x.now.tested.Parts = append(w.x.now.tested.Parts, tested)
		done := len(w.x.now.tested.Parts)
		w.x.mu.Unlock()
		if f := w.job.Keep.OnTested; f != nil {
			f(done, w.job.TestMicros())
		}
	}
	return h.cuts.pass(asKind(in, schedule.SF), out)
}

// tested reads the results of a micro-batch from the device.
func (w *worker) tested(s stage.Scores) (t control.Tested, err error) {
	if t.Loss, err = w.dev.Item(s.Loss); err != nil {
		return t, err
	}
	if s.Correct != nil {
		right, err := w.dev.Item(s.Correct)
		if err != nil {
			return t, err
		}
		t.Correct = &right
	}
	for _, n := range s.Reported {
		value, err := w.dev.Item(n)
		if err != nil {
			return t, err
		}
		if t.Reported = append(t.Reported, nil); isFinite(value) {
			t.Reported[len(t.Reported)-1] = &value
		}
	}
	return t, nil
}
