package process

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

// replicas sums a stage's gradients over its replicas. The replica is a member of one group for each bucket that may be
// in flight at once. At most one reduction is being filled.
type replicas struct {
	h        *holding
	lanes    []*collective.Group // used in turn; see joins
	reducing *reduction          // the sum for the next update; nil until the update's last backward begins
}

// reduction is the all-reduce of one update's gradients on one replica. It begins during the backward that completes
// these gradients. On a replica without a micro-batch it begins with the AR. Each layer's gradients are summed over the
// replicas while the worker computes the layers before it (PipeDream §4; usual in data-parallel training). All replicas
// take layers in the same order. The sum is in rank order unless another library computes it.
type reduction struct {
	begun   time.Time
	buckets chan []*lent
	open    []*lent // vectors of the bucket that is being filled
	filled  int64   // bytes in that bucket
	all     []*lent
	size    int64 // bytes of all buckets
	done    chan error
}

// closings returns a map from a backward to the AR whose gradients it completes. The backward is the stage's last one
// on this worker before that AR.
func closings(p *schedule.Program, worker int) map[schedule.Instruction]schedule.Instruction {
	last := map[position]schedule.Instruction{}
	out := map[schedule.Instruction]schedule.Instruction{}
	p.Walk(worker, func(in schedule.Instruction) bool {
		switch in.Kind {
		case schedule.B, schedule.W:
			last[positionOf(in)] = in
		case schedule.AR:
			if b, ok := last[positionOf(in)]; ok { // a replica without a micro-batch has no such backward
				out[b] = in
				delete(last, positionOf(in))
			}
		}
		return true
	})
	return out
}

// sumDuring makes the replicas sum gradients layer by layer while the backward `in` completes them. The function
// that it returns must be called after the backward.
func (r *replicas) sumDuring(in schedule.Instruction) (after func()) {
	s := r.h.stage
	ar, closes := r.h.w.agenda.closing[in]
	if !closes {
		return func() {}
	}
	s.Gathered = func(layer int) error { return r.sumLayer(ar, layer) }
	return func() { s.Gathered = nil }
}

// sumLayer adds a layer's gradients to the reduction.
func (r *replicas) sumLayer(ar schedule.Instruction, layer int) error {
	vectors, err := r.h.stage.Gradients.OfLayer(layer)
	if err != nil {
		return err
	}
	return r.sum(ar, vectors)
}

// sum adds vectors to the reduction, and sends off a bucket that is full.
func (r *replicas) sum(ar schedule.Instruction, vectors []stage.Vector) error {
	if r.reducing == nil {
		r.reducing = r.reduce(ar)
	}
	l, err := r.h.lending.lend(waitGradients, vectors)
	if err != nil {
		return err
	}
	if r.reducing.add(l); r.reducing.filled >= r.h.w.job.Sums.BucketBytes {
		r.reducing.flush()
	}
	return nil
}

// add puts lent vectors into the bucket that is being filled.
func (r *reduction) add(l *lent) {
	r.open, r.all = append(r.open, l), append(r.all, l)
	n := l.bytes()
	r.filled, r.size = r.filled+n, r.size+n
}

// flush sends off the bucket that is being filled.
func (r *reduction) flush() {
	if len(r.open) > 0 {
		r.buckets <- r.open
		r.open, r.filled = nil, 0
	}
}

// sumBucket sums a bucket as soon as its vectors are in host memory.
func (r *replicas) sumBucket(ctx context.Context, group *collective.Group, bucket []*lent) error {
	w := r.h.w
	var vectors []wire.Buffer
	for _, l := range bucket {
		if err := l.wait(); err != nil {
			return err
		}
		vectors = append(vectors, buffersOf(l)...)
	}
	if w.job.Sums.Meet == nil || len(group.Ranks) == 1 {
		return group.AllReduce(ctx, vectors, w.job.sum)
	}
	return w.x.summers.sum(ctx, group, vectors)
}

// reduce starts a reduction, which begins to sum after the previous one. It ends after its last bucket, or when the run
// ends.
func (r *replicas) reduce(ar schedule.Instruction) *reduction {
	w := r.h.w
	// The channel has room for all buckets, so that the worker never waits to hand one over.
	most := int(r.h.stage.Gradients.Bytes()/w.job.Sums.BucketBytes) + 2
	d := &reduction{begun: time.Now(), buckets: make(chan []*lent, most), done: make(chan error, 1)}
	work := r.h.turns.next(ar.Kind, func(ctx context.Context) error {
		ctx, stop := context.WithCancelCause(ctx) // an error on one lane ends all lanes
		to, ended := make([]chan []*lent, len(r.lanes)), make(chan error, len(r.lanes))
		for k, group := range r.lanes {
			to[k] = make(chan []*lent, most)
			w.x.beside.Go(crash.Caught(func() {
				err := crash.Guard(func() error { return r.sumBuckets(ctx, group, to[k]) })
				if err != nil {
					stop(err)
				}
				ended <- err
			}))
		}
		err := d.deal(ctx, to)
		for range to {
			err = cmp.Or(err, <-ended)
		}
		stop(nil)
		return err
	})
	w.x.beside.Go(crash.Caught(func() {
		d.done <- crash.Guard(func() error { return work(w.x.ctx) })
	}))
	return d
}

// joins makes the replica a member of the groups that sum its gradients. Successive buckets use these groups in turn.
// Successive Programs with the same placement of the stage use the same groups. Under asp there are no such groups.
func (r *replicas) joins(p *schedule.Program) error {
	w, at := r.h.w, r.h.at
	if int(at.pipeline) >= len(p.Placement) || p.Served() || w.job.Served() {
		return nil
	}
	ranks := p.Placement[at.pipeline][at.stage]
	if len(r.lanes) > 0 && slices.Equal(r.lanes[0].Ranks, ranks) {
		return nil
	}
	r.lanes = nil
	ar := schedule.Instruction{Kind: schedule.AR, Pipeline: at.pipeline, Stage: at.stage}
	for k := range lanes(w.x.now.slots > 0) {
		group, err := collective.NewGroup(&w.x.ends.table, w.mail.port, lane(ar, k), ranks, int(at.replica))
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, group)
	}
	return nil
}

// deal distributes the buckets over the lanes in turn, until the channel is closed or ctx ends.
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
func (r *replicas) sumBuckets(ctx context.Context, group *collective.Group, buckets <-chan []*lent) error {
	for bucket := range buckets {
		if err := r.sumBucket(ctx, group, bucket); err != nil {
			return err
		}
	}
	return nil
}

// allReduce sums a stage's remaining gradients, and its buffers, over the replicas. The update then divides the buffers
// by the number of replicas.
func (r *replicas) allReduce(in schedule.Instruction) error {
	h := r.h
	if err := h.losses.read(in); err != nil {
		return err
	}
	// A replica without a micro-batch sums all its layers here, one after the other, so that it fills the same buckets
	// as the others.
	for l := h.stage.Last; l >= h.stage.First; l-- {
		if err := r.sumLayer(in, l); err != nil {
			return err
		}
	}
	statistics, err := h.updates.by.Statistics()
	if err != nil {
		return err
	}
	if err := r.sum(in, statistics); err != nil {
		return err
	}
	d := r.reducing
	r.reducing = nil
	if err := h.updates.by.Complete(); err != nil {
		return err
	}
	d.flush()
	close(d.buckets)
	h.w.besides(in, d.begun, d.size, func(context.Context) error {
		err := <-d.done
		for _, l := range d.all {
			l.summed.Store(err == nil)
		}
		return err
	})
	return nil
}

// lending holds vectors of a stage in host memory while they are summed beside the worker. The worker lends them. The
// summing goroutine waits for the copies and reports when the sum is done. Then the worker copies the sums back to the
// device, in the order of lending.
type lending struct {
	w     *worker
	under []*lent // being summed beside the worker, or summed but not copied back
}

// lend fetches vectors that will be copied back.
func (a *lending) lend(at Wait, vectors []stage.Vector) (*lent, error) {
	l, err := a.w.fetch(at, vectors)
	if err == nil {
		a.under = append(a.under, l)
	}
	return l, err
}

// land copies back the vectors whose sums are done, in the order of lending, up to the first whose sum is not done.
func (a *lending) land() error {
	for len(a.under) > 0 && a.under[0].summed.Load() {
		l := a.under[0]
		a.under = a.under[1:]
		for i, host := range l.hosts {
			if !a.w.job.waits(waitLanded) {
				break
			}
			if err := a.w.dev.FromHost(l.vectors[i].Tensor, host); err != nil {
				l.free()
				return fmt.Errorf("%s: %w", l.vectors[i].Name, err)
			}
		}
		l.free()
	}
	return nil
}

func (a *lending) close() {
	for _, l := range a.under {
		l.free()
	}
}

// lent is a list of vectors fetched to host memory.
type lent struct {
	now     bool // readers do not wait; only a test sets this
	vectors []stage.Vector
	hosts   []engine.Host
	summed  atomic.Bool // the sum is done
}

// fetch begins to copy vectors to host memory, after all work queued on the device. Readers must wait for the copies.
func (w *worker) fetch(at Wait, vectors []stage.Vector) (*lent, error) {
	l := &lent{vectors: vectors, now: !w.job.waits(at)}
	for _, v := range vectors {
		host, err := w.dev.ToHost(v.Tensor)
		if err != nil {
			l.free()
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		l.hosts = append(l.hosts, host)
	}
	return l, nil
}

// wait blocks until all copies are complete.
func (l *lent) wait() error {
	if l.now {
		return nil
	}
	for i, host := range l.hosts {
		if err := host.Ready().Wait(); err != nil {
			return fmt.Errorf("%s: %w", l.vectors[i].Name, err)
		}
	}
	return nil
}

// bytes returns the size of the vectors.
func (l *lent) bytes() int64 {
	var n int64
	for _, v := range l.vectors {
		n += v.Tensor.Bytes()
	}
	return n
}

// numbers waits for the lent tensors, reads them as float64, and frees them.
func (l *lent) numbers() ([]float64, error) {
	defer l.free()
	if err := l.wait(); err != nil {
		return nil, err
	}
	var all []float64
	for i, host := range l.hosts {
		if l.vectors[i].Tensor.DType() == engine.Float64 {
			all = append(all, engine.Numbers[float64](host.Bytes())...)
			continue
		}
		for _, x := range engine.Numbers[float32](host.Bytes()) {
			all = append(all, float64(x))
		}
	}
	return all, nil
}

func (l *lent) free() {
	for _, host := range l.hosts {
		host.Free()
	}
	l.hosts = nil
}
