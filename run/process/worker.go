package process

import (
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/run/beside"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/update"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

// worker is one device and the stages on it. Its loop runs on a goroutine locked to its
// thread; the fields below bell are guarded by the process's mu.
type worker struct {
	rank    int
	number  int // among those of this process
	x       *Process
	job     *Job
	dev     engine.Device
	seat    *place.Seat
	port    *wire.Port
	held    map[position]*holding
	open    int                                           // micro-batches between forward and backward, over its stages
	peak    int                                           // most there have been
	updater schedule.Updater                              // that its stages have
	uses    []schedule.Use                                // under a policy other than sync: what is left of the Program's
	fresh   bool                                          // nothing of the Program has been executed
	closing map[schedule.Instruction]schedule.Instruction // of the Program: see closings

	at    schedule.Instruction // that it last looked at
	idled chan struct{}        // closed when it works no more

	messages []incoming // that the receive under way takes
	dropping bool       // and throws away

	aside *beside.Thread // of the references that it holds; nil: none has moved
	took  *update.Copy   // by the update under way: the newest reference, if it is not the one before

	bell     *place.Bell   // look again
	running  bool          // has something to do, or has been told to look
	free     time.Time     // when it had issued its last instruction
	started  time.Time     // when it began the one that it is at
	done     time.Time     // when its device had done its last computation
	lacks    machine.Need  // what it last waited for
	memory   engine.Memory // behind its last computation, and the most that it has held
	most     int64         // bytes that it has held at once
	complete bool          // what it is at is complete, though its own time on it is not over
	late     chan struct{} // closed when the device has done what it was last seen to be late with
}

// incoming is a message that a receive takes.
type incoming struct {
	sent schedule.Instruction
	from int
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
	inbox    box                 // crossed the cut in front, not yet used
	forth    box                 // to cross the cut behind
	grads    box                 // gradients come from behind
	back     box                 // gradients to go to the front
	scale    float64             // what clipping multiplies gradients by, of the step under way
	norm     verdict             // of the update that is not validated yet
	first    int                 // version of the weights that the Program under way began with
	lanes    []*collective.Group // that sum its gradients over the replicas; see joins
	reducing *reduction          // of the update to come, once its last backward runs
	updates  update.Updater
	losses   []unread                        // of forwards since, in the order of the forwards
	lent     []*lent                         // what is being summed beside the worker, or has been and is not landed
	applied  int                             // updates of a server in the Program under way
	reads    map[int32]int                   // by minibatch: how many there had been in the weights it was sent
	packers  map[schedule.Kind]*stage.Packer // by SF and SB: of what is sent in fewer bits
	given    *update.Copy                    // of a reference beside the pipelines: the newest, not yet seen; under mu
	moves    bool                            // it has been given to the thread beside the worker
	mover    *update.Mover                   // there; of that thread alone
	seen     int                             // updates of that reference, in the Program, that pipelines see
	turns    map[schedule.Kind]chan struct{} // closed when the collective of a kind that was issued last is over
}

func newHolding(s *stage.Stage, p position) *holding {
	return &holding{
		Stage: s, position: p, inbox: box{}, forth: box{}, grads: box{}, back: box{}, scale: 1,
		turns: map[schedule.Kind]chan struct{}{}, reads: map[int32]int{}, packers: map[schedule.Kind]*stage.Packer{},
	}
}

// packerOf writes what is sent by a kind of instruction.
func (h *holding) packerOf(kind schedule.Kind, f packing.Format) *stage.Packer {
	if h.packers[kind] == nil {
		h.packers[kind] = &stage.Packer{Format: f}
	}
	return h.packers[kind]
}

func (h *holding) close() {
	for _, b := range []box{h.inbox, h.forth, h.grads, h.back} {
		b.free()
	}
	freeLosses(h.losses)
	for _, p := range h.packers {
		p.Free()
	}
	for _, l := range h.lent {
		l.free()
	}
	if h.updates != nil {
		h.updates.Close()
	}
	h.Stage.Close()
}

// life is the worker's goroutine: it opens its device, says so, works until the run is
// over, and once nothing is in flight any more gives everything back.
func (w *worker) life(opened chan<- error, release <-chan struct{}) departure {
	w.seat = w.x.place.Settle(w.number)
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
	left.memory.PeakBytes = max(left.memory.PeakBytes, w.most)
	if w.job.KeepWeights && w.x.isWhole() {
		if err = w.seeNewest(); err == nil {
			left.weights, err = w.weights()
		}
	}
	if w.aside != nil {
		left.leaked = w.aside.Close()
	}
	left.rounded = w.allRounded()
	for _, h := range w.held {
		h.close()
	}
	left.leaked += w.dev.Close()
	return err
}

// start opens the device and makes the worker's stages. Nothing of a device is used from
// another goroutine.
func (w *worker) start() error {
	dev, err := w.job.Engine.Open(w.job.World.Workers[w.rank].Device, w.job.Threads)
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
	if err := w.updateBy(schedule.Policy(w.job.Plan.Weights).Updater()); err != nil {
		return err
	}
	dev.ResetPeak()
	w.memory = dev.Memory()
	return nil
}

// work executes instructions until there are no more. A panic between two of them, of the gate for instance,
// is an error of the one that it last looked at.
func (w *worker) work() {
	err := crash.Guard(func() error {
		for {
			in, ok := w.await()
			if !ok {
				return nil
			}
			begin := w.mark(in)
			size, err := w.try(in)
			if err != nil {
				return err
			}
			w.finished(in, begin, size)
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
func (w *worker) await() (schedule.Instruction, bool) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.err != nil || x.over {
			w.running = false
			return schedule.Instruction{}, false
		}
		if x.program != nil {
			need := x.gate.Poll(w.rank)
			if w.at = need.At; need.Ready() {
				x.moved = time.Now()
				w.started = x.moved
				w.begin(need.At)
				return need.At, true
			}
			if w.running = false; need.Lack != machine.Ended {
				w.lacks = need
			}
			x.checkStall()
		}
		w.running = false
		x.mu.Unlock()
		w.bell.Wait()
		x.mu.Lock()
	}
}

// begin starts the head of the list, which may start. The caller holds mu.
func (w *worker) begin(in schedule.Instruction) {
	w.sit()
	if in.Kind.IsReceive() {
		l := w.x.gate.Local(w.rank)
		w.dropping, w.messages = l.Dropping(), w.messages[:0]
		l.Messages(func(sent schedule.Instruction, from int) bool {
			w.messages = append(w.messages, incoming{sent, from})
			return true
		})
	}
	w.x.gate.Start(w.rank)
	w.looks(in)
}

// sit binds the worker to the processor of the core that it has, if it has one.
func (w *worker) sit() {
	if core, has := w.x.gate.Processor(w.rank); has {
		w.seat.Compute(core)
	}
}

// mark is the event in front of an instruction or behind it: the device's, if it is one that computes.
func (w *worker) mark(in schedule.Instruction) engine.Event {
	if in.Kind.IsCompute() {
		return w.dev.Record()
	}
	return engine.Past(time.Now())
}

// finished says that the worker has issued an instruction, and that it is complete once its device has done
// it. Sends and collectives go on beside the worker and say so themselves.
func (w *worker) finished(in schedule.Instruction, begin engine.Event, size int64) {
	x := w.x
	e := execution{in: in, begin: begin, end: w.mark(in), size: size, dropped: in.Kind.IsReceive() && w.dropping}
	held := w.dev.Memory()
	w.dev.ResetPeak() // of each instruction by itself
	e.high, e.live = max(held.PeakBytes, held.LiveBytes), held.LiveBytes
	x.mu.Lock()
	defer x.mu.Unlock()
	w.most = max(w.most, e.high)
	if held.PeakBytes = w.most; in.Kind.IsCompute() {
		w.memory = held
	}
	now := time.Now()
	e.ready, e.lacked = w.free, w.lacks
	w.free, x.moved, w.lacks = now, now, machine.Need{}
	switch {
	case in.Kind.IsIssued():
		x.issued(w, false)
	case e.end.Done():
		x.complete(w, e)
		x.issued(w, true)
	default:
		x.issued(w, false)
		x.later(w, e)
	}
}

// prepare readies the worker for a Program that is about to start, with nothing in flight.
func (w *worker) prepare(p *schedule.Program) error {
	w.fresh, w.uses, w.closing = true, nil, closings(p, w.rank)
	if p.Streams() && !p.Served() { // there every worker has the one version that it was sent, or makes
		w.uses = p.Uses(w.rank)
	}
	for _, h := range w.held {
		h.first, h.applied, h.seen = h.Versions.Newest(), 0, 0
		clear(h.reads)
		if err := w.joins(h, p); err != nil {
			return fmt.Errorf("run: worker %d: %w", w.rank, err)
		}
	}
	return nil
}

// settle drops versions of the weights that a Program cut short has left, and has the Updaters that it asks
// for.
func (w *worker) settle() error {
	w.fresh = false
	for _, h := range w.held {
		if err := h.Settle(); err != nil {
			return err
		}
	}
	if err := w.seeNewest(); err != nil {
		return err
	}
	if !w.x.trains {
		return nil
	}
	return w.updateBy(w.x.program.Updater())
}

// use is the version of the weights that the computation about to be executed uses or makes,
// and the one that it frees, -1 for none.
func (w *worker) use(h *holding, in schedule.Instruction) (version, frees int) {
	if w.uses == nil {
		return h.Versions.Newest(), -1
	}
	for len(w.uses) > 0 && w.uses[0].Instruction != in { // of a minibatch that is passed
		w.uses = w.uses[1:]
	}
	if len(w.uses) == 0 {
		panic(fmt.Sprintf("run: worker %d executes %v, which the program does not say to use weights", w.rank, in))
	}
	u := w.uses[0]
	w.uses = w.uses[1:]
	if u.Frees < 0 {
		return h.first + u.Version, -1
	}
	return h.first + u.Version, h.first + u.Frees
}
