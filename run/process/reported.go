package process

import (
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/trace"
)

// unread is the loss of a forward, which stays on the device until something is made of its minibatch's
// gradients.
type unread struct {
	loss      engine.Tensor
	minibatch int // of the Program
	micro     int // of the step
	slice     int // of the step's losses
	share     float64
}

// forwarded keeps the loss of a forward.
func (w *worker) forwarded(h *holding, in schedule.Instruction, m stage.Micro, loss engine.Tensor) {
	slice := (int(in.Pipeline)*w.job.Plan.MicroBatches+m.Index)*w.job.LastReplicas() + int(in.Replica)
	h.losses = append(h.losses, unread{loss, w.x.program.MinibatchOf(in), m.Index, slice, w.share(m)})
}

// readLosses reads the losses of the minibatches that an update covers, or a collective in front of it, and
// refuses those that are no numbers before anything is made of their gradients here. It waits for the device.
func (w *worker) readLosses(h *holding, in schedule.Instruction) error {
	_, end := w.x.program.Covers(in, w.x.minibatches)
	var due []unread
	h.losses = slices.DeleteFunc(h.losses, func(u unread) bool {
		if u.minibatch < end {
			due = append(due, u)
		}
		return u.minibatch < end
	})
	if len(due) == 0 {
		return nil
	}
	defer freeLosses(due)
	values, err := w.numbers(due)
	if err != nil {
		return err
	}
	for i, u := range due {
		if !isFinite(values[i]) {
			return &LossError{Step: w.x.base + u.minibatch, Stage: int(in.Stage), Micro: u.micro, Value: values[i]}
		}
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	for i, u := range due {
		w.x.record.Loss(w.x.base+u.minibatch, u.slice, values[i]*u.share)
	}
	return nil
}

// numbers is the losses' values.
func (w *worker) numbers(of []unread) ([]float64, error) {
	m := w.dev.Begin()
	defer w.dev.End(m)
	all := make([]engine.Tensor, len(of))
	for i, u := range of {
		all[i] = u.loss
	}
	together, err := engine.Stack(w.dev, all)
	if err != nil {
		return nil, err
	}
	l, err := w.fetch(waitLosses, []stage.Vector{{Name: "losses", Tensor: together}})
	if err != nil {
		return nil, err
	}
	return l.numbers()
}

func freeLosses(all []unread) {
	for _, u := range all {
		u.loss.Free()
	}
}

// standing tells the leader that the process's part of a step stands. The caller holds mu.
func (x *Process) standing(p record.Part) {
	s := control.Step{Step: p.Step, StartS: p.Start.Seconds(), EndS: p.End.Seconds(), Norm: p.Norm}
	for _, k := range x.mine {
		w := x.workers[k]
		sent, received := w.port.Traffic()
		s.Workers = append(s.Workers, control.Did{BusyS: p.Busy[k].Seconds(), PeakBytes: w.memory.PeakBytes,
			LiveBytes: w.memory.LiveBytes, SentBytes: sent, ReceivedBytes: received})
	}
	if a := p.Applied; a != nil {
		s.Applied = &control.Applied{At: a.At, Version: a.Version}
	}
	for _, seen := range p.Seen {
		s.Seen = append(s.Seen, control.Seen(seen))
	}
	if x.job.OnPart != nil {
		x.job.OnPart(p.Step)
	}
	for i, l := range p.Losses {
		s.Losses = append(s.Losses, control.Loss{Index: i, Value: l})
	}
	x.say(s)
}

// show tells the leader what there is of a step, on a goroutine of its own, so that no worker waits. The caller
// holds mu.
func (x *Process) show(what control.Show) {
	t := x.job.Timeline()
	t.Events = []trace.Event{}
	excerpt, kept := x.record.Excerpt(what.Step, what.Around)
	events, samples := excerpt.Rows()
	x.beside.Go(crash.Caught(func() {
		answer := control.Shown{Step: what.Step}
		if kept && max(events, samples) <= control.MostShown {
			excerpt.Fill(&t)
			answer.Timeline = &t
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.say(answer)
	}))
}

// timeline is the process's record so far.
func (x *Process) timeline() *trace.Timeline {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.job.Timeline()
	x.record.Fill(&t)
	t.PeakBytes, t.PeakActivations = make([]int64, t.Workers), make([]int, t.Workers)
	for _, k := range x.mine {
		t.PeakActivations[k] = x.workers[k].peak
	}
	return &t
}
