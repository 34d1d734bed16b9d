package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/trace"
)

// worker is one device and the stages on it. Its loop runs on a goroutine locked to its thread. Other goroutines call
// only Room, Charge and Beside of the device.
type worker struct {
	rank   int
	number int // index among the workers of this process
	x      *Process
	job    *Job
	dev    engine.Device
	seat   *place.Seat
	bell   *place.Bell   // wakes the worker to look again
	idled  chan struct{} // closed when the worker has stopped working
	mail   mailbox
	held   map[position]*holding
	aside  aside
	agenda agenda

	at      schedule.Instruction // the instruction that the worker last looked at
	open    int                  // micro-batches between forward and backward, over its stages
	peak    int                  // the largest value of open so far
	updater schedule.Updater     // the Updater of its stages

	progress progress
}

func newWorker(x *Process, rank, number int) *worker {
	w := &worker{rank: rank, number: number, x: x, job: x.job, held: map[position]*holding{}, bell: place.NewBell(),
		idled: make(chan struct{}), progress: progress{running: true, free: time.Now()}}
	w.mail, w.aside = mailbox{w: w, port: x.ends.ports.Port(rank)}, aside{w: w}
	return w
}

// agenda holds what a worker needs to know of a Program.
type agenda struct {
	fresh   bool                                          // nothing of the Program has been executed
	uses    []schedule.Use                                // weight versions still to be used, in streams except asp
	closing map[schedule.Instruction]schedule.Instruction // see closings
}

func agendaOf(p *schedule.Program, worker int) agenda {
	a := agenda{fresh: true, closing: closings(p, worker)}
	if p.Streams() && !p.Served() { // under asp a worker has one version, which it was sent or makes
		a.uses = p.Uses(worker)
	}
	return a
}

// next removes the use of weights by an instruction and returns it. It also removes the uses before it, which belong
// to a skipped minibatch.
func (a *agenda) next(in schedule.Instruction) (u schedule.Use, found bool) {
	for len(a.uses) > 0 && a.uses[0].Instruction != in {
		a.uses = a.uses[1:]
	}
	if len(a.uses) == 0 {
		return schedule.Use{}, false
	}
	u, a.uses = a.uses[0], a.uses[1:]
	return u, true
}

// progress is how far a worker is, for other goroutines. The process's mu guards it.
type progress struct {
	running  bool                  // the worker has something to do, or was told to look
	free     time.Time             // when it had issued its last instruction
	started  time.Time             // when it began its current instruction
	done     time.Time             // when its device had done its last computation
	lacks    machine.Need          // what the worker last waited for
	complete bool                  // its current instruction is complete, but the call that issues it has not returned
	passed   *schedule.Instruction // has left its work to the next instruction, which is not complete yet; or nil
	late     chan struct{}         // closed when the last execution given to later is done
	memory   engine.Memory         // after its last computation, and the most so far
	most     int64                 // the most bytes that it has held at once
}

// position is one replica of one stage.
type position struct {
	pipeline int16
	stage    int32
	replica  int16
}

func positionOf(in schedule.Instruction) position { return position{in.Pipeline, in.Stage, in.Replica} }

// life is the worker's goroutine. It opens its device, reports that the device is open, works until the run is over,
// and frees everything once nothing is in flight.
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

// leave stores the worker's results in `left`, and frees everything.
func (w *worker) leave(left *departure) (err error) {
	if w.dev == nil {
		return nil
	}
	left.memory = w.dev.Memory()
	left.memory.PeakBytes = max(left.memory.PeakBytes, w.progress.most)
	if w.job.Keep.Weights && w.x.isWhole() {
		if err = w.aside.seeNewest(); err == nil {
			left.weights, err = w.weights()
		}
	}
	left.leaked = w.aside.close()
	for _, h := range w.held {
		left.rounded = trace.JoinRounded(left.rounded, h.cuts.rounded())
		h.close()
	}
	left.leaked += w.dev.Close()
	return err
}

// start opens the device and makes the worker's stages.
func (w *worker) start() error {
	dev, err := w.job.Engine.Open(w.job.World.Workers[w.rank].Device, w.job.Devices.Threads)
	if err != nil {
		return err
	}
	w.dev = dev
	for _, p := range w.job.places(w.rank) {
		s, err := stage.New(w.job.stageConfig(dev, p))
		if err != nil {
			return err
		}
		w.held[p] = newHolding(w, s, p)
	}
	if err := w.updateBy(schedule.Policy(w.job.Plan.Weights).Updater()); err != nil {
		return err
	}
	dev.ResetPeak()
	w.progress.memory = dev.Memory()
	return nil
}

// work executes instructions until there are no more. A panic between two instructions, for instance in the gate, is
// reported for the instruction at which the worker last looked.
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

// failed adds the worker and the instruction to an error. It leaves out the instruction if the error is about a number
// that is not finite. Such an error already names its step, and the instruction's text would give the step another
// number.
func (w *worker) failed(in schedule.Instruction, err error) error {
	if in.Kind == 0 {
		return fmt.Errorf("run: worker %d: in front of its first instruction: %w", w.rank, err)
	}
	if errors.Is(err, ErrNotFinite) {
		return fmt.Errorf("run: worker %d: %w", w.rank, err)
	}
	return fmt.Errorf("run: worker %d: %v: %w", w.rank, w.x.now.absolute(in), err)
}

func (w *worker) try(in schedule.Instruction) (size int64, err error) {
	err = crash.Guard(func() error {
		if w.agenda.fresh {
			if err := w.settle(); err != nil {
				return err
			}
		}
		size, err = w.execute(in)
		return err
	})
	return size, err
}

// await sleeps until the worker's next instruction may start, and starts it. It returns false when the process has
// failed or its workers leave.
func (w *worker) await() (schedule.Instruction, bool) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.failure.err != nil || x.leaving.over {
			w.progress.running = false
			return schedule.Instruction{}, false
		}
		if x.now.program != nil {
			need := x.crew.gate.Poll(w.rank)
			if w.at = need.At; need.Ready() {
				x.activity.moved = time.Now()
				w.progress.started = x.activity.moved
				w.begin(need.At)
				return need.At, true
			}
			if w.progress.running = false; need.Lack != machine.Ended {
				w.progress.lacks = need
			}
			x.checkStall()
		}
		w.progress.running = false
		x.mu.Unlock()
		w.bell.Wait()
		x.mu.Lock()
	}
}

// begin starts instruction `in`. The gate has said that it may start. The caller holds mu.
func (w *worker) begin(in schedule.Instruction) {
	w.sit()
	if in.Kind.IsReceive() {
		w.mail.expects(w.x.crew.gate.Local(w.rank))
	}
	w.x.crew.gate.Start(w.rank)
	w.aside.looks(in)
}

// sit binds the worker to the processor of the core that it has, if any.
func (w *worker) sit() {
	if core, has := w.x.crew.gate.Processor(w.rank); has {
		w.seat.Compute(core)
	}
}

// mark returns an event before or after an instruction. For a computation it is an event of the device.
func (w *worker) mark(in schedule.Instruction) engine.Event {
	if in.Kind.IsCompute() {
		return w.dev.Record()
	}
	return engine.Past(time.Now())
}

// finished reports that the worker has issued an instruction. It also reports the instruction as complete, once the
// device has done it. Sends and collectives continue beside the worker and report their own end.
func (w *worker) finished(in schedule.Instruction, begin engine.Event, size int64) {
	x := w.x
	e := execution{in: in, begin: begin, end: w.mark(in), size: size, dropped: in.Kind.IsReceive() && w.mail.dropping}
	held := w.dev.Memory()
	w.dev.ResetPeak() // so that the next peak is that of the next instruction
	e.high, e.live = max(held.PeakBytes, held.LiveBytes), held.LiveBytes
	x.mu.Lock()
	defer x.mu.Unlock()
	w.progress.most = max(w.progress.most, e.high)
	if held.PeakBytes = w.progress.most; in.Kind.IsCompute() {
		w.progress.memory = held
	}
	now := time.Now()
	e.ready, e.lacked = w.progress.free, w.progress.lacks
	x.activity.moved = now
	// If this instruction passes its work to the next one, the next one waited for what this one waited for.
	if passed := w.progress.passed; passed == nil || *passed != in {
		w.progress.free, w.progress.lacks = now, machine.Need{}
		e.took, w.progress.passed = passed, nil
	}
	switch {
	case in.Kind.IsIssued():
		w.issued(false)
	case e.end.Done():
		w.complete(e)
		w.issued(true)
	default:
		w.issued(false)
		w.later(e)
	}
}

// prepare prepares the worker for a Program that is about to start. Nothing is in flight.
func (w *worker) prepare(p *schedule.Program) error {
	w.agenda = agendaOf(p, w.rank)
	for _, h := range w.held {
		if err := h.begin(p); err != nil {
			return fmt.Errorf("run: worker %d: %w", w.rank, err)
		}
	}
	return nil
}

// settle drops the versions of the weights that are left because a Program was shortened, and gives the pipelines the
// newest references. It also sets the Updaters that a training Program needs.
func (w *worker) settle() error {
	w.agenda.fresh = false
	for _, h := range w.held {
		if err := h.stage.Settle(); err != nil {
			return err
		}
	}
	if err := w.aside.seeNewest(); err != nil {
		return err
	}
	if !w.x.now.trains {
		return nil
	}
	return w.updateBy(w.x.now.program.Updater())
}

// caughtUp blocks until the device has done all queued work and all of it is recorded.
func (w *worker) caughtUp() error {
	if !w.job.waits(WaitValidated) {
		return nil
	}
	if err := w.dev.Record().Wait(); err != nil {
		return err
	}
	w.x.mu.Lock()
	late := w.progress.late
	w.x.mu.Unlock()
	if late != nil {
		<-late
	}
	return nil
}
