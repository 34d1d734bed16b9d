package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// Train runs a training to its last step. When ctx ends it finishes the step under way,
// saves a checkpoint where there is a place for one, and returns with Stopped set and no
// error. After an error the Result still has the Timeline up to it.
func Train(ctx context.Context, c Config) (*Result, error) {
	c, err := c.filled()
	if err != nil {
		return nil, err
	}
	j, err := newJob(c)
	if err != nil {
		return nil, err
	}
	on, err := c.Place.Take(len(j.plan.Devices()), c.Cores, c.ThreadsPerWorker)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run: %w", err), j.close())
	}
	defer on.Leave()
	if processor, taken := on.Taken(); taken && c.Hooks.OnTaken != nil {
		c.Hooks.OnTaken(processor)
	}
	r, err := newRunner(j, on)
	if err == nil {
		err = crash.Guard(func() error { return r.train(ctx) })
	}
	if r == nil {
		return nil, errors.Join(err, j.close())
	}
	res, closing := r.end()
	if err == nil {
		err = r.x.failure() // of a hook, or of the watchdog, behind the last step
	}
	return res, errors.Join(err, closing, j.close())
}

func (j *job) close() error {
	if j.from == nil {
		return nil
	}
	return j.from.Close()
}

// runner is the coordinator of one run: it starts the workers, hands them one Program
// after the other, and looks at what comes out.
type runner struct {
	job     *job
	x       *process
	hooks   *hookQueue
	release chan struct{}
	gone    chan departure
	quit    chan struct{} // ends the watchdog
	watched chan struct{}

	done        int // steps, in all
	span        int // steps of the next Program, at most
	loss        float64
	stopped     bool
	begun       bool // Config.Begin was called
	checkpoint  string
	evaluations []trace.Evaluation
}

// departure is what a worker leaves behind.
type departure struct {
	rank    int
	leaked  int
	memory  engine.Memory
	weights map[string]Weight
	err     error
}

func newRunner(j *job, on *place.Place) (*runner, error) {
	workers := len(j.plan.Devices())
	mesh, err := j.config.Mesh(workers)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	if mesh.Size() != workers {
		return nil, errors.Join(fmt.Errorf("run: a mesh of %d ranks for %d workers", mesh.Size(), workers), mesh.Close())
	}
	replicas := 0
	for _, on := range j.placement {
		replicas += len(on)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{
		job: j, release: make(chan struct{}), gone: make(chan departure, workers),
		quit: make(chan struct{}), watched: make(chan struct{}), span: maxRepeat,
	}
	if j.plan.PostValidate {
		r.span = 16 * leastRepeat
	}
	r.x = &process{
		ctx: ctx, cancel: cancel, mesh: mesh, decide: j.config.decide, cores: j.config.Cores, began: time.Now(),
		onStep: r.stepDone, sent: map[delivery]*sending{}, moved: time.Now(),
		place:  on,
		record: record.New(j.config.KeepSteps, j.config.WantStep, j.plan.MicroBatches*j.together(), len(j.placement[len(j.placement)-1]), replicas*j.models()),
	}
	r.hooks = newHookQueue(func(err error) { r.x.fail(0, err) })
	if j.from != nil {
		r.done, r.loss = j.from.Manifest.Steps, j.from.Manifest.Loss
	}
	crash.Go(func() {
		defer close(r.watched)
		r.x.watch(j.config.StallAfter, r.quit)
	})
	return r, r.startWorkers(workers)
}

// startWorkers opens every device and waits until all have, or one has failed.
func (r *runner) startWorkers(n int) error {
	opened := make(chan error, n)
	for rank := range n {
		w := &worker{rank: rank, x: r.x, job: r.job, ep: r.x.mesh.Endpoint(rank), held: map[position]*holding{}, bell: place.NewBell(), idled: make(chan struct{}), running: true, free: time.Now()}
		r.x.workers = append(r.x.workers, w)
	}
	for _, w := range r.x.workers {
		w.ep.Notify(func(from int, tag wire.Tag) { r.x.arrived(w.rank, from, tag) })
		crash.Go(func() { r.gone <- w.life(opened, r.release) })
	}
	var first error
	for range n {
		if err := <-opened; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		r.x.fail(0, first)
		return fmt.Errorf("run: %w", first)
	}
	return nil
}

// train hands out Programs until the last step is done or ctx ends.
func (r *runner) train(ctx context.Context) error {
	stop := context.AfterFunc(ctx, crash.Caught(r.x.stopAfterStep))
	defer stop()
	if ctx.Err() != nil {
		r.x.stopAfterStep() // not only on AfterFunc's goroutine, which may come after the first step
	}
	c := &r.job.config
	if r.done == c.Steps {
		return r.finishOnly()
	}
	for r.done < c.Steps && !r.stopped {
		if err := r.trainTo(ctx, r.boundary()); err != nil {
			return err
		}
		last := r.done == c.Steps || r.stopped
		if c.Checkpoint.Dir != "" && (last || divides(c.Checkpoint.Every, r.done)) {
			if err := r.save(); err != nil {
				return err
			}
		}
		if c.Data.Test != nil && !r.stopped && (last || divides(c.EvalEvery, r.done)) {
			if err := r.evaluate(); err != nil {
				return err
			}
		}
	}
	return nil
}

func divides(every, n int) bool { return every > 0 && n%every == 0 }

// boundary is the next step before which the Program must end.
func (r *runner) boundary() int {
	c := &r.job.config
	end := c.Steps
	for _, every := range []int{c.Checkpoint.Every, c.EvalEvery} {
		if every > 0 {
			end = min(end, (r.done/every+1)*every)
		}
	}
	return end
}

// trainTo runs Programs until `end` steps are done or ctx has ended.
func (r *runner) trainTo(ctx context.Context, end int) error {
	for r.done < end && !r.stopped {
		p, err := r.next(min(end-r.done, r.span))
		if err != nil {
			return err
		}
		if err := r.begin(); err != nil {
			return err
		}
		steps, err := r.run(p, r.done, true)
		r.done += steps
		if p.PostValidate && steps < p.Minibatches() {
			r.span = max(leastRepeat, r.span/4)
		} else {
			r.span = min(maxRepeat, 2*r.span)
		}
		if err != nil {
			return err
		}
		r.stopped = ctx.Err() != nil && r.done < r.job.config.Steps
	}
	return nil
}

// maxRepeat bounds the steps of one Program, so that micro-batch ids stay small.
const maxRepeat = 4096

// leastRepeat is the steps of a Program where updates are often taken back: each time the rest of
// the Program is passed over, so that it is to be short, and each begins with an empty pipeline, so that it
// is not to be a step.
const leastRepeat = 4

// next is the Program of the next steps.
func (r *runner) next(steps int) (*schedule.Program, error) {
	c := &r.job.config
	if c.Next == nil {
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Clip > 0, steps)
		if err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
		return p, c.runnable(p)
	}
	so := r.timeline()
	for _, w := range r.x.workers { // idle between two Programs
		so.PeakBytes = append(so.PeakBytes, w.dev.Memory().PeakBytes)
	}
	p, err := c.Next(so, steps)
	if err != nil {
		return nil, fmt.Errorf("run: the next program: %w", err)
	}
	return p, r.checkProgram(p, steps)
}

// checkProgram refuses a Program that is not one of this run's.
func (r *runner) checkProgram(p *schedule.Program, steps int) error {
	c := &r.job.config
	switch {
	case p.Stages != len(c.Plan.Stages) || len(p.Placement) != r.job.models() || !sameElastic(p.Elastic, c.Plan.Elastic):
		return fmt.Errorf("run: program %s has %d stages in %d pipelines; the plan has %d in %d, with the same elastic averaging", p.Name, p.Stages, len(p.Placement), len(c.Plan.Stages), r.job.models())
	case p.Period < 1 || p.MicroBatches != p.Period*c.Plan.MicroBatches:
		return fmt.Errorf("run: program %s has %d micro-batches in %d steps; the plan has %d in each", p.Name, p.MicroBatches, p.Period, c.Plan.MicroBatches)
	case p.Minibatches() < 1 || p.Minibatches() > steps:
		return fmt.Errorf("run: program %s is %d steps long; 1 to %d are due", p.Name, p.Minibatches(), steps)
	case p.Clip != (c.Clip > 0):
		return fmt.Errorf("run: program %s says clip: %v; the limit of the gradient norm is %v", p.Name, p.Clip, c.Clip)
	}
	return c.runnable(p)
}

// run executes one Program and returns how many minibatches of it were executed.
func (r *runner) run(p *schedule.Program, base int, trains bool) (int, error) {
	ended, err := r.x.load(p, base, trains)
	if err != nil {
		return 0, err
	}
	<-ended
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	if r.x.err != nil {
		return r.x.steps, r.x.err
	}
	if r.x.refused != nil {
		return r.x.steps, r.x.refused
	}
	return min(r.x.limit, p.Minibatches()), nil
}

// evaluate passes the test data through the stages.
func (r *runner) evaluate() error {
	r.job.tests = make([]tested, r.job.testMicros())
	p, err := programs.Evaluation(r.job.placement, len(r.job.tests))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if _, err := r.run(p, r.done, false); err != nil {
		return err
	}
	e := r.job.verdict(r.done - 1)
	if r.job.together() > 1 {
		e.Apart = new(r.job.apart)
		r.job.apart = 0
	}
	r.evaluations = append(r.evaluations, e)
	if f := r.job.config.Hooks.OnEvaluation; f != nil {
		r.hooks.add(func() { f(e) })
	}
	return nil
}

// stepDone is called, under the process's mu, when the last update of a step has ended.
func (r *runner) stepDone(f record.Finished) {
	r.loss = f.Loss
	r.x.steps++
	hook := r.job.config.Hooks.OnStep
	if hook == nil {
		return
	}
	report := StepReport{
		Step: f.Step, Loss: f.Loss, Rate: r.job.rate.At(f.Step), Seconds: f.Took.Seconds(), BusySeconds: f.Busy.Seconds(),
	}
	if f.Took > 0 {
		report.SamplesPerSecond = float64(r.job.plan.Batch()*r.job.together()) / report.Seconds
		report.Bubble = 1 - report.BusySeconds/(report.Seconds*float64(len(r.x.workers)))
	}
	r.hooks.add(func() { hook(report) })
}

// timeline is the record so far.
func (r *runner) timeline() trace.Timeline {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	t := trace.Timeline{
		Version: trace.Version, Source: "run", Model: r.job.model.Name, Workers: len(r.x.workers), Stages: len(r.job.plan.Stages),
		Cores: r.job.config.Cores, ThreadsPerWorker: r.job.threads, Stream: overlaps(r.job.plan),
	}
	r.x.record.Fill(&t)
	t.Evaluations = append(t.Evaluations, r.evaluations...)
	t.PeakActivations = make([]int, len(r.x.workers))
	for k, w := range r.x.workers {
		t.PeakActivations[k] = w.peak
	}
	return t
}

// end sends the workers home and collects what they leave. Whatever is in flight is
// given back before any device closes.
func (r *runner) end() (*Result, error) {
	close(r.quit)
	<-r.watched
	r.x.finish()
	for _, w := range r.x.workers {
		<-w.idled
	}
	r.x.cancel()
	r.x.beside.Wait()
	r.hooks.close()
	for _, w := range r.x.workers {
		w.ep.Notify(nil)
	}
	closing := r.x.mesh.Close()
	close(r.release)
	res := &Result{Steps: r.done, Loss: r.loss, Stopped: r.stopped, Checkpoint: r.checkpoint, PeakBytes: make([]int64, len(r.x.workers))}
	for range r.x.workers {
		d := <-r.gone
		res.Leaked += d.leaked
		closing = errors.Join(closing, d.err)
		res.PeakBytes[d.rank] = d.memory.PeakBytes
		for name, x := range d.weights {
			if res.Weights == nil {
				res.Weights = map[string]Weight{}
			}
			res.Weights[name] = x
		}
	}
	res.Timeline = r.timeline()
	res.Timeline.PeakBytes = res.PeakBytes
	res.BusySeconds = r.x.record.BusyAll.Seconds()
	if length := r.x.record.TookAll.Seconds(); length > 0 {
		res.BubbleMean = 1 - res.BusySeconds/(length*float64(len(r.x.workers)))
	}
	return res, closing
}
