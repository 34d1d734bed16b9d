package run

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
)

// worker is one device and the stages on it. Its loop runs on a goroutine locked to its
// thread; the fields below bell are guarded by the executor's mu.
type worker struct {
	rank    int
	x       *executor
	job     *job
	dev     engine.Device
	ep      wire.Endpoint
	held    map[position]*holding
	open    int                                           // micro-batches between forward and backward, over its stages
	peak    int                                           // most there have been
	uses    []schedule.Use                                // under a policy other than sync: what is left of the Program's
	fresh   bool                                          // nothing of the Program has been executed
	closing map[schedule.Instruction]schedule.Instruction // of the Program: see closings

	at    schedule.Instruction // that it last looked at
	idled chan struct{}        // closed when it works no more

	bell      *place.Bell   // look again
	running   bool          // has something to do, or has been told to look
	here      bool          // at the end of its list
	free      time.Time     // when its last instruction ended
	minibatch int           // latest of the Program it has begun
	lacks     schedule.Need // what it last waited for
}

// position is one replica of one stage.
type position struct {
	pipeline int16
	stage    int32
	replica  int16
}

func positionOf(in schedule.Instruction) position { return position{in.Pipeline, in.Stage, in.Replica} }

// holding is a stage on a worker and the tensors on their way to and from it, by micro-batch.
type holding struct {
	*stage.Stage
	position
	inbox    box         // crossed the cut in front, not yet used
	forth    box         // to cross the cut behind
	grads    box         // gradients come from behind
	back     box         // gradients to go to the front
	scale    float64     // what clipping multiplies gradients by, of the step under way
	first    int         // version of the weights that the Program under way began with
	reducing *reduction  // of the update to come, once its last backward runs
	push     *stage.Push // of a pipeline: its latest step, until the reference takes it
	doubtful bool        // its last update is not validated yet
	doubts   error       // what a forward behind it has met, which counts if it stands
	forwards int         // of training so far
	summed   []summed    // buffers of updates to come
}

func newHolding(s *stage.Stage, p position) *holding {
	return &holding{
		Stage: s, position: p, inbox: box{}, forth: box{}, grads: box{}, back: box{}, scale: 1,
	}
}

func (h *holding) close() {
	for _, b := range []box{h.inbox, h.forth, h.grads, h.back} {
		b.free()
	}
	if h.push != nil {
		h.push.Free()
	}
	h.Stage.Close()
}

// life is the worker's goroutine: it opens its device, says so, works until the run is
// over, and once nothing is in flight any more gives everything back.
func (w *worker) life(opened chan<- error, release <-chan struct{}) departure {
	w.x.place.Settle(w.rank)
	err := crash.Guard(w.start)
	opened <- err
	if err == nil {
		w.work()
	}
	close(w.idled)
	<-release
	left := departure{rank: w.rank}
	if err := crash.Guard(func() error { return w.leave(&left) }); err != nil {
		left.err = fmt.Errorf("run: worker %d, behind its last instruction: %w", w.rank, err)
	}
	return left
}

// leave gives everything back.
func (w *worker) leave(left *departure) (err error) {
	if w.dev == nil {
		return nil
	}
	left.memory = w.dev.Memory()
	if w.job.config.KeepWeights && w.x.failure() == nil {
		left.weights, err = w.weights()
	}
	for _, h := range w.held {
		h.close()
	}
	left.leaked = w.dev.Close()
	return err
}

// weights copies the parameters and buffers of the stages that this worker saves.
func (w *worker) weights() (map[string]Weight, error) {
	all := map[string]Weight{}
	for p, h := range w.held {
		if p.replica != 0 || p.pipeline != w.job.shown() {
			continue
		}
		vectors, err := h.Snapshot()
		if err != nil {
			return nil, fmt.Errorf("the weights of stage %d: %w", p.stage, err)
		}
		for _, v := range vectors {
			if !strings.Contains(v.Name, "#") {
				all[v.Name] = Weight{DType: v.DType, Shape: v.Shape, Data: bytes.Clone(v.Data)}
			}
		}
	}
	return all, nil
}

// start opens the device and makes the worker's stages. Nothing of a device is used from
// another goroutine.
func (w *worker) start() error {
	dev, err := w.job.engine.Open(w.rank, w.job.threads)
	if err != nil {
		return err
	}
	w.dev = dev
	for _, p := range w.job.places(w.rank) {
		s, err := stage.New(w.job.stageConfig(dev, p))
		if err != nil {
			return err
		}
		w.held[p] = newHolding(s, p)
	}
	dev.ResetPeak()
	return nil
}

// work executes instructions until there are no more. A panic between two of them, of the Gate for instance, is an
// error of the one that it last looked at.
func (w *worker) work() {
	err := crash.Guard(func() error {
		for {
			in, start, ok := w.await()
			if !ok {
				return nil
			}
			size, err := w.try(in)
			if err != nil {
				return err
			}
			w.done(in, start, size)
		}
	})
	if err != nil {
		w.x.fail(w.rank, w.failed(w.at, err))
	}
}

// failed is the error of an instruction.
func (w *worker) failed(in schedule.Instruction, err error) error {
	if in.Kind == 0 {
		return fmt.Errorf("run: worker %d: in front of its first instruction: %w", w.rank, err)
	}
	return fmt.Errorf("run: worker %d: %v: %w", w.rank, w.x.absolute(in), err)
}

func (w *worker) try(in schedule.Instruction) (size int64, err error) {
	err = crash.Guard(func() error {
		if w.fresh {
			if err := w.settle(); err != nil {
				return err
			}
		}
		size, err = w.execute(in)
		return err
	})
	return size, err
}

// await sleeps until the worker's next instruction may start, and starts it; false once
// there is none.
func (w *worker) await() (schedule.Instruction, time.Time, bool) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.err != nil || x.over {
			w.running = false
			return schedule.Instruction{}, time.Time{}, false
		}
		if !w.here && x.program != nil {
			in, more := x.gate.Head(w.rank)
			if !more {
				w.arrive()
			} else if w.at = in; w.mayStart() {
				if x.minibatchOf(in) >= x.limit {
					x.skip(w, in)
					continue
				}
				w.running = true
				w.minibatch = max(w.minibatch, x.minibatchOf(in))
				now := time.Now()
				x.moved = now
				return in, now, true
			}
		}
		x.mu.Unlock()
		w.bell.Wait()
		x.mu.Lock()
		w.running = !w.here // also where a bell rang that load had no need to ring: it looks, and nobody else is to
	}
}

// arrive has the worker wait for the next Program at the end of its list.
func (w *worker) arrive() {
	x := w.x
	w.here, w.running = true, false
	x.idle++
	if x.idle == len(x.workers) {
		x.closeEnded()
	} else {
		x.checkStall()
	}
}

// mayStart starts the head of the list, or notes what it waits for.
func (w *worker) mayStart() bool {
	x := w.x
	need := x.gate.Poll(w.rank)
	if need.Ready() {
		x.gate.Start(w.rank)
		return true
	}
	w.lacks, w.running = need, false
	x.checkStall()
	return false
}

// done files what the worker has executed and tells the Gate.
func (w *worker) done(in schedule.Instruction, start time.Time, size int64) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	ready, end := w.free, time.Now()
	w.free, x.moved = end, end
	if !in.Kind.IsIssued() { // what is issued is noted when it is complete
		e := x.note(record.Event{
			Worker: w.rank, In: in, Ready: x.since(ready), Start: x.since(start), End: x.since(end), Bytes: size, Blocker: w.lacks,
		})
		if in.Kind.IsCompute() {
			x.record.Sample(e, w.dev.Memory().LiveBytes)
		}
	}
	w.lacks = schedule.Need{}
	if in.Kind == x.program.Settles() && x.refused == nil {
		first, end := x.program.Covers(in, x.minibatches)
		for n := first; n < end; n++ {
			if f, whole := x.record.Updated(x.base + n); whole {
				x.onStep(f)
			}
		}
	}
	x.poll(x.gate.End(w.rank))
}

// prepare readies the worker for a Program that is about to start, with nothing in flight.
func (w *worker) prepare(p *schedule.Program) {
	w.fresh, w.uses, w.closing = true, nil, closings(p, w.rank)
	if p.Streams() {
		w.uses = p.Uses(w.rank)
	}
	for _, h := range w.held {
		h.first = h.Version()
	}
}

// settle drops versions of the weights that a Program cut short has left.
func (w *worker) settle() error {
	w.fresh = false
	for _, h := range w.held {
		if err := h.Settle(); err != nil {
			return err
		}
	}
	return nil
}

// use is the version of the weights that the computation about to be executed uses or makes,
// and the one that it frees, -1 for none.
func (w *worker) use(h *holding, in schedule.Instruction) (version, frees int) {
	if w.uses == nil {
		return h.Version(), -1
	}
	u := w.uses[0]
	if u.Instruction != in {
		panic(fmt.Sprintf("run: worker %d executes %v where the program's next use of weights is by %v", w.rank, in, u.Instruction))
	}
	w.uses = w.uses[1:]
	if u.Frees < 0 {
		return h.first + u.Version, -1
	}
	return h.first + u.Version, h.first + u.Frees
}
