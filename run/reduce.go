package run

import (
	"context"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
)

// bucketBytes is how many bytes of gradients replicas sum at once, at least. Smaller layers
// wait for the next, because each sum costs three rounds of messages.
const bucketBytes = 1 << 20

// reduction is the all-reduce of one update's gradients on one replica. It begins in the
// backward that makes the last of them: each layer's are summed over the replicas, in rank
// order, while the worker goes on with the layers in front (PipeDream §4 and every data
// parallel system since). All replicas take layers in the same order.
type reduction struct {
	begun   time.Time
	buckets chan []wire.Part
	open    []wire.Part // of the bucket that is being filled
	size    int64       // of all
	done    chan error
}

// closings are the backwards of a worker behind which a stage's replicas sum their
// gradients, with the instruction that asks for it.
func closings(p *schedule.Program, worker int) map[schedule.Instruction]schedule.Instruction {
	last := map[position]schedule.Instruction{}
	out := map[schedule.Instruction]schedule.Instruction{}
	p.Walk(worker, func(in schedule.Instruction) bool {
		switch in.Kind {
		case schedule.B, schedule.W:
			last[positionOf(in)] = in
		case schedule.AR:
			if b, ok := last[positionOf(in)]; ok { // none: a replica without a micro-batch
				out[b] = in
				delete(last, positionOf(in))
			}
		}
		return true
	})
	return out
}

// reduceDuring has the replicas sum the gradients that the backward `in` makes the last of,
// layer by layer, as it runs. What it returns must be called behind the backward.
func (w *worker) reduceDuring(h *holding, in schedule.Instruction) (after func()) {
	ar, closes := w.closing[in]
	if !closes {
		return func() {}
	}
	h.Gathered = func(layer int) error {
		vectors, err := h.LayerGradients(layer)
		if err == nil {
			w.sum(h, ar, vectors)
		}
		return err
	}
	return func() { h.Gathered = nil }
}

// sum adds vectors to what the replicas sum, and sends off what fills a bucket.
func (w *worker) sum(h *holding, ar schedule.Instruction, vectors []stage.Vector) {
	if h.reducing == nil {
		h.reducing = w.reduce(ar)
	}
	r := h.reducing
	parts := partsOf(vectors)
	r.open = append(r.open, parts...)
	r.size += wire.Message(parts).Bytes()
	if wire.Message(r.open).Bytes() >= bucketBytes {
		r.buckets <- r.open
		r.open = nil
	}
}

// reduce starts a reduction. It ends with its buckets or with the run.
func (w *worker) reduce(ar schedule.Instruction) *reduction {
	_, ranks := w.x.program.Group(ar)
	group := wire.Group{Ranks: ranks, Me: int(ar.Replica)}
	shared := ar
	shared.Replica = 0
	tag := tagOf(shared, w.x.epoch)
	// As many buckets as there can be without the worker waiting to hand one over.
	most := int(w.held[positionOf(ar)].GradientBytes()/bucketBytes) + 2
	r := &reduction{begun: time.Now(), buckets: make(chan []wire.Part, most), done: make(chan error, 1)}
	w.x.beside.Go(crash.Caught(func() {
		r.done <- crash.Guard(func() error {
			for {
				select {
				case <-w.x.ctx.Done():
					return context.Cause(w.x.ctx)
				case parts, more := <-r.buckets:
					if !more {
						return nil
					}
					if err := wire.AllReduce(w.x.ctx, w.ep, group, tag, parts, w.job.sum); err != nil {
						return err
					}
				}
			}
		})
	}))
	return r
}

// allReduce sums over the replicas what is left of a stage's gradients, and its buffers,
// which the update then divides.
func (w *worker) allReduce(h *holding, in schedule.Instruction) error {
	// Layer by layer here too: a replica that had no micro-batch fills the same buckets.
	for l := h.Last; l >= h.First; l-- {
		vectors, err := h.LayerGradients(l)
		if err != nil {
			return err
		}
		w.sum(h, in, vectors)
	}
	statistics, err := w.statistics(h)
	if err != nil {
		return err
	}
	w.sum(h, in, statistics)
	r := h.reducing
	h.reducing = nil
	if w.x.program.DeferUpdates {
		if err := h.SetAside(); err != nil {
			return err
		}
	}
	if len(r.open) > 0 {
		r.buckets <- r.open
	}
	close(r.buckets)
	w.x.besides(w, in, r.begun, r.size, func(context.Context) error { return <-r.done })
	return nil
}
