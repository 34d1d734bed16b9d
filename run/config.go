package run

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// Data holds the data that a run reads. Test may be nil if nothing is evaluated. Workers read concurrently.
type Data struct {
	Train, Test data.Split
	Mark        data.Mark // identifies Train in checkpoints; zero means that checkpoints do not identify it
}

// Checkpointing says where and how often a run writes checkpoints.
type Checkpointing struct {
	Dir   string // empty means never
	Every int    // steps between two checkpoints; 0 means only at the end and when stopped
	Keep  int    // how many of the run's own checkpoints are kept, the newest ones; 0 keeps all
	// ByStage makes each stage of a stream save itself in every period, after its own last update of the period. The
	// pipeline is not drained for this. See Checkpoints in the package comment.
	ByStage bool
	// Claim asks whether the run may use a checkpoint folder that is not the leader's; nil means that no question is
	// asked. It is called in the first of the processes that have the folder, before any checkpoint there changes. If
	// the run may use the folder, Claim must call arrange, which sets aside the folder's earlier contents. An error of
	// Claim ends the run.
	Claim func(arrange func() error) error
}

// Hooks are called during a run, one at a time, on a goroutine that no worker waits for. OnPart, OnTested, WantsTrace
// and OnTaken are called on other goroutines.
type Hooks struct {
	OnStep       func(StepReport)
	OnEvaluation func(trace.Evaluation)
	OnCheckpoint func(dir string, steps int)
	// OnQuiet is called when nothing has happened for StallAfter while workers compute, and again after each further
	// StallAfter. `chain` says what each worker does or waits for. If possible, each worker is followed by a worker
	// that it waits for. A run cannot distinguish a slow device from one that hangs.
	OnQuiet func(quiet time.Duration, chain []string)
	// OnPart is called in every process when its own part of a step is complete. It must return quickly: workers wait
	// for it.
	OnPart func(step int)
	// OnTested is called in the processes that compute the loss, during an evaluation. Of the `of` micro-batches that
	// this process evaluates, `done` are then complete. It must return quickly, and several workers may call it at
	// once.
	OnTested func(done, of int)
	// OnPace is called when a worker becomes a straggler, regularly while it still is one, and when it stops being one.
	// It is also called, once, if so many workers are slower than their profiles that the whole machine counts as slow
	// (pace.All).
	OnPace func(Pace)
	// OnLate is called when a step takes far longer than earlier steps. It is called again each time the step's
	// duration has doubled since the last call. `late` is how long the step has taken, `usual` is how long earlier
	// steps took, and `chain` is as in OnQuiet.
	OnLate func(late, usual time.Duration, chain []string)
	// WantsTrace is called for each complete step and must return at once. It is not called while an earlier trace is
	// being collected. If it returns true, OnTrace is called with the Timeline of that step, unless the record is
	// already gone or too long. If WantsTrace or OnTrace is nil, neither is called.
	WantsTrace func(step int) bool
	OnTrace    func(*trace.Timeline)
	// OnTaken is called before the first step if another run has bound its workers to this processor. This run's
	// workers are then not bound at all.
	OnTaken func(processor int)
}

// StepReport describes a completed step.
type StepReport struct {
	Step             int
	Loss             float64 // mean over the step's batch
	Rate             float64 // learning rate of the step's update
	Seconds          float64 // duration of the step, without its overlap with the step before
	SamplesPerSecond float64
	Bubble           float64 // 1 - sum(busy) / (workers x step)
	BusySeconds      float64 // compute time, summed over workers
	GradientNorm     float64 // before clipping; 0 without clipping
	Workers          []control.Did
}

// Pace describes a change in how fast a worker computes compared with its profile.
type Pace struct {
	pace.Change
	Text string // the change as a sentence
}

// Training says how long a model is trained, with which updates, and how often it is evaluated.
type Training struct {
	Steps     int // total, including the steps before a resumed checkpoint
	Optimizer optim.Settings
	Rate      optim.Rate
	// RateScale is the rule by which Rate was multiplied, and RateFactor is the factor; 0 means 1. Checkpoints record
	// the factor.
	RateScale  string
	RateFactor float64
	Clip       float64 // limit of the gradients' global norm; 0 means none
	Seed       uint64  // for initial values and dropout masks
	// PerSlice allows layers that normalise over a micro-batch in a plan whose replicas split micro-batches. Each
	// replica then normalises over its own slice. Without PerSlice such a plan is refused.
	PerSlice bool
	// AnyOrder allows Programs that sum gradients in an order other than that of the micro-batches. Without it they are
	// refused, because their weights are not bit-identical to those of one worker.
	AnyOrder bool

	EvalEvery int // steps between two evaluations; 0 means only at the end, if there is test data
	EvalRows  int // rows of test data to evaluate; 0 means all

	// Replay makes weight policy asp apply the updates in the order of another run's Timeline.Applied, so that the
	// weights have the same bits. It must have all steps of this run. nil means the order in which gradients arrive.
	Replay []trace.Applied
	// ReplaySeen makes updates see the references that another run recorded in its Timeline.Seen. It is for elastic
	// averaging with the reference beside the pipelines.
	ReplaySeen []trace.Seen
}

// Machine says where the workers are and what the workers of this process compute with.
type Machine struct {
	World *process.World // nil means that all workers are in this process
	// Place says what the run may change in its process and which processors it may use; nil means that it changes
	// nothing.
	Place            *place.Policy
	ThreadsPerWorker int // threads within one operator; 0 means 1
	Cores            int // cores that the workers of this process share; 0 means that each has its own
	// Ahead is how many computations may already be queued on a device when it gets the next one; 0 means none. It is
	// for devices that return before they have computed. Shared cores require 0.
	Ahead int
}

// Wire says how workers send each other messages, and how replicas sum gradients.
type Wire struct {
	// Carriers makes the carriers of messages between workers; nil means wire.InProcess. The run closes them.
	Carriers func(workers int) ([]wire.Carrier, error)
	// Slots is how many messages from one worker to another may be in flight or wait at the receiver. 0 means the
	// largest number that can occur between two workers of the Program in any timing (check.InFlight). If every message
	// hands its sender's memory over to the receiver, 0 means no bound. A Program that would block with this number is
	// refused.
	Slots int
	// BucketBytes is the least number of gradient bytes that replicas sum at once. 0 means the plan's number or, if the
	// plan has none, schedule.BucketBytes.
	BucketBytes int64
	// Meet lets another library sum gradients over replicas, in its own order. All replicas then have the same bits,
	// but not those of one worker. nil means that millrace sums them in rank order.
	Meet process.Meet
}

// Resuming says which checkpoint a run resumes from. The zero value starts anew.
type Resuming struct {
	At string // a checkpoint, or a directory of them
	// Open is the checkpoint that At names, if it is already open or on several hosts; Train closes it. nil means that
	// Train opens At.
	Open *checkpoint.Checkpoint
	// Averaged allows a checkpoint with another number of pipelines than the run has. All pipelines then begin at the
	// checkpoint's reference or, if the checkpoint has a single pipeline, at that pipeline's weights. Optimizer states
	// are averaged. Without Averaged such a checkpoint is refused.
	Averaged bool
}

// Watching says when a worker or a run counts as slow, late or stalled.
type Watching struct {
	// ProfileS is how long each worker should compute per step, in seconds; it is used to find stragglers. nil means
	// that stragglers are not looked for. They are not looked for under asp either, where each worker has its own pace.
	ProfileS []float64
	// StallAfter is how long a run waits while nothing happens; 0 means 5 minutes. It applies while all workers wait
	// and while a process starts, carries out an order, answers or leaves. A transfer in progress counts as something
	// happening, so that slow links and disks may take longer. A run in which no worker can ever continue ends at once.
	StallAfter time.Duration
	// LateAfter is the least time that a step takes before Hooks.OnLate is called; 0 means 5 seconds.
	LateAfter time.Duration
}

// Keeping says what the Result contains besides its numbers.
type Keeping struct {
	Steps    int            // number of last steps whose events are kept in full; 0 means 8
	WantStep func(int) bool // further steps to keep in full
	// Moments limits the number of moments of the run at which further steps are kept in full. The moments divide the
	// run evenly, so that some of the kept steps are typical of it. At each moment, its step and the steps before and
	// after it are kept. If steps overlap by their schedule, there are no moments.
	Moments int
	Weights bool // the final parameters and buffers
}

// Config describes a training run.
type Config struct {
	Model  *model.Model
	Plan   *plan.Plan
	Engine engine.Engine
	Data   Data

	Train   Training
	Machine Machine
	Wire    Wire
	// After every Train.EvalEvery steps a Program ends with a drain, even if the run goes on. The same holds for
	// Checkpoint.Every, unless ByStage is set.
	Checkpoint Checkpointing
	Resume     Resuming
	Watch      Watching
	Keep       Keeping
	Hooks      Hooks

	// Next is called at every boundary between Programs. It returns the lowered Program for at most the next `steps`
	// steps (its Minibatches). nil means the plan's own schedule. `so` is the Timeline of the run until now.
	Next func(so trace.Timeline, steps int) (*schedule.Program, error)
	// Begin is called once, when the workers and the first Program are ready but before the first step. Its error ends
	// the run like any other error.
	Begin func() error
	// Class names the kind of an error for the other processes (control.Failed); nil means that kinds are not named.
	Class func(error) string

	without process.Wait // the wait that a test disables
	unit    int          // a Program may end after multiples of this many steps (StopUnit); set by the method filled
	longest int          // most steps of one Program: a test's value, or maxRepeat
	// decide makes the Gate, which decides which instruction may start; nil means a machine.Process
	decide func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error)
}

// Result is the outcome of a run.
type Result struct {
	Timeline    trace.Timeline
	Steps       int     // steps done, including those before a resumed checkpoint
	Loss        float64 // loss of the last step of this run
	Stopped     bool    // the context ended the run before its last step
	Checkpoint  string  // path of the last checkpoint written, or resumed from if no step was left; may be empty
	Leaked      int     // handles still open when the devices were closed; anything but 0 is a bug of millrace
	PeakBytes   []int64 // by worker, from the device's allocator
	BubbleMean  float64 // over all steps of this run
	BusySeconds float64 // compute time, summed over workers and steps
	Weights     map[string]process.Weight
}

const (
	defaultKeepSteps  = 8
	defaultStallAfter = 5 * time.Minute
	defaultLateAfter  = 5 * time.Second
)

// usual returns the carriers of a run whose Config names none. Tests replace it.
var usual = func(*Config) func(workers int) ([]wire.Carrier, error) { return wire.InProcess }

// filled returns the Config with its defaults, or an error if it is invalid.
func (c Config) filled() (Config, error) {
	if err := c.contradicts(); err != nil {
		return c, err
	}
	if err := c.trains(); err != nil {
		return c, err
	}
	c.longest = cmp.Or(c.longest, maxRepeat)
	// Only the leader has the Programs: other processes do not know schedules read from a file. With Next the Programs
	// are not the plan's.
	leads := c.Machine.World == nil || c.Machine.World.Rank == 0
	if leads && (c.Next == nil || c.Checkpoint.ByStage) {
		p, err := programs.AtLeast(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1)
		if err != nil {
			return c, fmt.Errorf("run: %w", err)
		}
		if err := c.byStage(p); err != nil {
			return c, err
		}
		c.unit, c.longest = p.StopUnit(), longest(p, c.longest)
	}
	if err := steppable(c.Train.Optimizer, c.Plan, c.Model); err != nil {
		return c, err
	}
	if c.Machine.World == nil {
		c.Machine.World = process.Alone(len(c.Plan.Devices()))
	}
	if err := c.Machine.World.Check(len(c.Plan.Devices())); err != nil {
		return c, err
	}
	c.defaults()
	return c, nil
}

// contradicts returns an error for numbers out of range and for settings that exclude each other.
func (c *Config) contradicts() error {
	switch {
	case c.Model == nil || c.Plan == nil || c.Engine == nil || c.Data.Train == nil:
		return fmt.Errorf("run: a run needs a model, a plan, an engine and training data")
	case c.Train.Steps < 1:
		return fmt.Errorf("run: %d steps; a run has at least 1", c.Train.Steps)
	case !(c.Train.Clip >= 0):
		return fmt.Errorf("run: gradients are clipped to %v; the limit must be above 0, or 0 for none", c.Train.Clip)
	case c.Train.EvalEvery < 0 || c.Checkpoint.Every < 0 || c.Checkpoint.Keep < 0:
		return fmt.Errorf("run: evaluate every %d steps, checkpoint every %d and keep %d: none may be negative",
			c.Train.EvalEvery, c.Checkpoint.Every, c.Checkpoint.Keep)
	case c.Wire.BucketBytes < 0:
		return fmt.Errorf("run: gradients are summed %d bytes at once; give more than 0, or 0 for the usual",
			c.Wire.BucketBytes)
	case c.Watch.StallAfter < 0 || c.Keep.Steps < 0 || c.Keep.Moments < 0 || c.Train.EvalRows < 0:
		return fmt.Errorf("run: a stall after %v, %d steps kept, %d moments kept, %d rows evaluated: none may be negative",
			c.Watch.StallAfter, c.Keep.Steps, c.Keep.Moments, c.Train.EvalRows)
	case c.Machine.ThreadsPerWorker < 0 || c.Machine.Cores < 0 || c.Wire.Slots < 0 || c.Machine.Ahead < 0:
		return fmt.Errorf("run: %d threads a worker, %d cores, %d slots an edge and %d computations ahead: none may be "+
			"negative",
			c.Machine.ThreadsPerWorker, c.Machine.Cores, c.Wire.Slots, c.Machine.Ahead)
	case len(c.Watch.ProfileS) > 0 && len(c.Watch.ProfileS) != len(c.Plan.Devices()):
		return fmt.Errorf("run: profiles of %d workers; the plan has %d", len(c.Watch.ProfileS), len(c.Plan.Devices()))
	case c.Train.Replay != nil && !schedule.Policy(c.Plan.Weights).Served():
		return fmt.Errorf("run: an order of updates to replay, with weights %s; it is of weights %s", c.Plan.Weights,
			schedule.ASP)
	case c.Train.ReplaySeen != nil && !c.Plan.Elastic.Besides():
		return fmt.Errorf("run: an order of a reference's updates to replay, and no reference beside pipelines; it is " +
			"of weights elastic with the reference beside")
	case c.Train.ReplaySeen != nil && c.Next != nil:
		return fmt.Errorf("run: an order of a reference's updates to replay, and depths that are decided as the run " +
			"goes on; replay with the plan's own depths (advance 0)")
	case c.Train.EvalEvery > 0 && c.Data.Test == nil:
		return fmt.Errorf("run: evaluation every %d steps without test data", c.Train.EvalEvery)
	}
	return nil
}

// trains returns an error if the engine cannot train the model with this plan, optimizer and rate.
func (c *Config) trains() error {
	if c.Machine.Place != nil {
		if err := c.Machine.Place.Bind.Check(); err != nil {
			return fmt.Errorf("run: %w", err)
		}
	}
	if err := c.Train.Optimizer.Check(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := c.Train.Rate.Check(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if c.Engine.Float() == engine.Float32 {
		if err := optim.FitFloat32(c.Train.Optimizer, c.Train.Rate); err != nil {
			return fmt.Errorf("run: %w", err)
		}
	}
	return CheckPlan(c.Plan, c.Model, c.Train.PerSlice)
}

// defaults sets unset fields to their defaults.
func (c *Config) defaults() {
	c.Machine.ThreadsPerWorker = max(c.Machine.ThreadsPerWorker, 1)
	c.Keep.Steps = cmp.Or(c.Keep.Steps, defaultKeepSteps)
	c.Watch.StallAfter = cmp.Or(c.Watch.StallAfter, defaultStallAfter)
	c.Wire.BucketBytes = cmp.Or(c.Wire.BucketBytes, c.Plan.Gradients.BucketBytes(), schedule.BucketBytes)
	if c.Watch.LateAfter <= 0 {
		c.Watch.LateAfter = defaultLateAfter
	}
	if c.decide == nil {
		c.decide = func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error) {
			return machine.NewProcess(p, workers, o)
		}
	}
	if c.Wire.Carriers == nil {
		c.Wire.Carriers = usual(c)
	}
}

// splits reports whether a plan gives replicas slices of micro-batches.
func splits(p *plan.Plan) bool {
	return p.Replication == string(schedule.Split) && slices.ContainsFunc(p.Stages,
		func(s plan.Stage) bool { return len(s.Devices) > 1 })
}
