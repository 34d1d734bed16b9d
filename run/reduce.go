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
	buckets chan []*lent
	open    []*lent // of the bucket that is being filled
	filled  int64   // bytes in it
	all     []*lent
	size    int64 // of all
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
			err = w.sum(h, ar, vectors)
		}
		return err
	}
	return func() { h.Gathered = nil }
}

// sum adds vectors to what the replicas sum, and sends off what fills a bucket.
func (w *worker) sum(h *holding, ar schedule.Instruction, vectors []stage.Vector) error {
	if h.reducing == nil {
		h.reducing = w.reduce(ar)
	}
	r := h.reducing
	l, err := w.lend(h, vectors)
	if err != nil {
		return err
	}
	r.open, r.all = append(r.open, l), append(r.all, l)
	for _, v := range vectors {
		r.filled += v.Tensor.Bytes()
		r.size += v.Tensor.Bytes()
	}
	if r.filled >= bucketBytes {
		r.buckets <- r.open
		r.open, r.filled = nil, 0
	}
	return nil
}

// sumBucket sums what is lent, as soon as it is there.
func (w *worker) sumBucket(group wire.Group, tag wire.Tag, bucket []*lent) error {
	var parts []wire.Part
	for _, l := range bucket {
		if err := l.wait(); err != nil {
			return err
		}
		parts = append(parts, partsOf(l)...)
	}
	return wire.AllReduce(w.x.ctx, w.ep, group, tag, parts, w.job.sum)
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
	r := &reduction{begun: time.Now(), buckets: make(chan []*lent, most), done: make(chan error, 1)}
	w.x.beside.Go(crash.Caught(func() {
		r.done <- crash.Guard(func() error {
			for {
				select {
				case <-w.x.ctx.Done():
					return context.Cause(w.x.ctx)
				case bucket, more := <-r.buckets:
					if !more {
						return nil
					}
					if err := w.sumBucket(group, tag, bucket); err != nil {
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
	if err := w.readLosses(h, in); err != nil {
		return err
	}
	// Layer by layer here too: a replica that had no micro-batch fills the same buckets.
	for l := h.Last; l >= h.First; l-- {
		vectors, err := h.LayerGradients(l)
		if err != nil {
			return err
		}
		if err := w.sum(h, in, vectors); err != nil {
			return err
		}
	}
	statistics, err := w.statistics(h)
	if err != nil {
		return err
	}
	if err := w.sum(h, in, statistics); err != nil {
		return err
	}
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
	w.x.besides(w, in, r.begun, r.size, func(context.Context) error {
		err := <-r.done
		for _, l := range r.all {
			l.summed.Store(err == nil)
		}
		return err
	})
	return nil
}
