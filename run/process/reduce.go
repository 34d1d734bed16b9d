package process

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

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
		vectors, err := h.Gradients.OfLayer(layer)
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
		h.reducing = w.reduce(h, ar)
	}
	r := h.reducing
	l, err := w.lend(h, waitGradients, vectors)
	if err != nil {
		return err
	}
	r.open, r.all = append(r.open, l), append(r.all, l)
	for _, v := range vectors {
		r.filled += v.Tensor.Bytes()
		r.size += v.Tensor.Bytes()
	}
	if r.filled >= w.job.BucketBytes {
		r.flush()
	}
	return nil
}

// flush sends off the bucket that is being filled.
func (r *reduction) flush() {
	if len(r.open) > 0 {
		r.buckets <- r.open
		r.open, r.filled = nil, 0
	}
}

// sumBucket sums what is lent, as soon as it is there.
func (w *worker) sumBucket(ctx context.Context, group *collective.Group, bucket []*lent) error {
	var vectors []wire.Buffer
	for _, l := range bucket {
		if err := l.wait(); err != nil {
			return err
		}
		vectors = append(vectors, buffersOf(l)...)
	}
	if w.job.Meet == nil || len(group.Ranks) == 1 {
		return group.AllReduce(ctx, vectors, w.job.sum)
	}
	return w.x.natively(ctx, group, vectors)
}

// reduce starts a reduction, behind the one in front of it. It ends with its buckets or with the run.
func (w *worker) reduce(h *holding, ar schedule.Instruction) *reduction {
	// As many buckets as there can be without the worker waiting to hand one over.
	most := int(h.Gradients.Bytes()/w.job.BucketBytes) + 2
	r := &reduction{begun: time.Now(), buckets: make(chan []*lent, most), done: make(chan error, 1)}
	work := h.inTurn(ar.Kind, func(ctx context.Context) error {
		ctx, stop := context.WithCancelCause(ctx) // an error on one lane is that of all
		to, ended := make([]chan []*lent, len(h.lanes)), make(chan error, len(h.lanes))
		for k, group := range h.lanes {
			to[k] = make(chan []*lent, most)
			w.x.beside.Go(crash.Caught(func() {
				err := crash.Guard(func() error { return w.sumBuckets(ctx, group, to[k]) })
				if err != nil {
					stop(err)
				}
				ended <- err
			}))
		}
		err := r.deal(ctx, to)
		for range to {
			err = cmp.Or(err, <-ended)
		}
		stop(nil)
		return err
	})
	w.x.beside.Go(crash.Caught(func() {
		r.done <- crash.Guard(func() error { return work(w.x.ctx) })
	}))
	return r
}

// joins has a stage's replica be a member of the groups that sum its gradients, bucket by bucket in turn. They are
// made once for all Programs that place its stage alike.
func (w *worker) joins(h *holding, p *schedule.Program) error {
	if int(h.pipeline) >= len(p.Placement) || p.Served() || w.job.Served() {
		return nil
	}
	ranks := p.Placement[h.pipeline][h.stage]
	if len(h.lanes) > 0 && slices.Equal(h.lanes[0].Ranks, ranks) {
		return nil
	}
	h.lanes = nil
	ar := schedule.Instruction{Kind: schedule.AR, Pipeline: h.pipeline, Stage: h.stage}
	for k := range lanes(w.x.slots > 0) {
		group, err := collective.NewGroup(&w.x.table, w.port, lane(ar, k), ranks, int(h.replica))
		if err != nil {
			return err
		}
		h.lanes = append(h.lanes, group)
	}
	return nil
}

// deal gives out buckets in turn, until there are no more.
func (r *reduction) deal(ctx context.Context, to []chan []*lent) error {
	defer func() {
		for _, lane := range to {
			close(lane)
		}
	}()
	for k := 0; ; k = (k + 1) % len(to) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case bucket, more := <-r.buckets:
			if !more {
				return nil
			}
			to[k] <- bucket
		}
	}
}

// sumBuckets sums one bucket after the other.
func (w *worker) sumBuckets(ctx context.Context, group *collective.Group, buckets <-chan []*lent) error {
	for bucket := range buckets {
		if err := w.sumBucket(ctx, group, bucket); err != nil {
			return err
		}
	}
	return nil
}

// allReduce sums over the replicas what is left of a stage's gradients, and its buffers,
// which the update then divides.
func (w *worker) allReduce(h *holding, in schedule.Instruction) error {
	if err := w.readLosses(h, in); err != nil {
		return err
	}
	// Layer by layer here too: a replica that had no micro-batch fills the same buckets.
	for l := h.Last; l >= h.First; l-- {
		vectors, err := h.Gradients.OfLayer(l)
		if err != nil {
			return err
		}
		if err := w.sum(h, in, vectors); err != nil {
			return err
		}
	}
	statistics, err := h.updates.Statistics()
	if err != nil {
		return err
	}
	if err := w.sum(h, in, statistics); err != nil {
		return err
	}
	r := h.reducing
	h.reducing = nil
	if err := h.updates.Complete(); err != nil {
		return err
	}
	r.flush()
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
