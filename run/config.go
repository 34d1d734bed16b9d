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

// Data is what a run reads. Test may be nil where nothing is evaluated. Workers read at
// the same time.
type Data struct {
	Train, Test data.Split
}

// Checkpointing says where and how often a run saves itself.
type Checkpointing struct {
	Dir   string // empty: never
	Every int    // steps between two checkpoints; 0: only at the end and when stopped
	Keep  int    // how many of the run's own are kept, the newest ones; 0 keeps all
	// ByStage has stages of a stream save themselves every so many steps, each behind its own last update, and nothing
	// is drained for it; see Checkpoints in the package's description.
	ByStage bool
	// Claim asks whether the run may use a checkpoint folder that is not the leader's; nil: nobody is asked. It is
	// called in the first of the processes that have the folder, before anything there is changed, and calls arrange,
	// which sets aside what is there. Its error ends the run.
	Claim func(arrange func() error) error
}

// Hooks are called as a run goes on, one at a time, on a goroutine that no worker waits for.
type Hooks struct {
	OnStep       func(StepReport)
	OnEvaluation func(trace.Evaluation)
	OnCheckpoint func(dir string, steps int)
	// OnQuiet is called when nothing has happened for StallAfter, and again each time as long, while workers
	// compute: what each of all is at or waits for, followed by one that it waits for. A run cannot tell a slow
	// device from one that hangs.
	OnQuiet func(quiet time.Duration, chain []string)
	// OnPart is called, in any process, when its own part of a step stands. It must not take long: workers wait for it.
	OnPart func(step int)
	// OnPace is called when a worker becomes a straggler, or is one no longer. It is called once when the workers are
	// slower than their profiles alike.
	OnPace func(Pace)
	// OnLate is called when a step takes far longer than others so far. It is called again each time when the step has
	// taken twice as long as then. late is how long it has taken, usual how long others take, and chain what each
	// worker is at or waits for, as in OnQuiet.
	OnLate func(late, usual time.Duration, chain []string)
	// WantsTrace is asked about each step that stands, and must return at once. Where it says yes OnTrace is called with
	// the Timeline of that step, unless nobody has it any more or it is too long. With neither nothing is done.
	WantsTrace func(step int) bool
	OnTrace    func(*trace.Timeline)
	// OnTaken is called before the first step where another run has bound its workers to this processor, among others.
	// This run's are then bound to none.
	OnTaken func(processor int)
}

// StepReport is what is known once a step is done.
type StepReport struct {
	Step             int
	Loss             float64 // mean over the step's batch
	Rate             float64 // learning rate it was updated with
	Seconds          float64 // from its first forward to its last update
	SamplesPerSecond float64
	Bubble           float64 // 1 - sum(busy) / (workers x step)
	BusySeconds      float64 // computing, summed over workers
	GradientNorm     float64 // before clipping; 0 where nothing is clipped
	Workers          []control.Did
}

// Pace is how fast a worker computes beside its profile, now that this has changed.
type Pace struct {
	pace.Change
	Text string // the same in a sentence
}

// Training says how long a model is trained, by which updates, and how often it is evaluated.
type Training struct {
	Steps     int // in all, those before a resumed checkpoint included
	Optimizer optim.Settings
	Rate      optim.Rate
	// RateFactor is what Rate was multiplied by, by the rule RateScale, for checkpoints to record. 0 is 1.
	RateScale  string
	RateFactor float64
	Clip       float64 // limit of the gradients' global norm; 0: none
	Seed       uint64  // of first values and dropout masks
	// PerSlice admits layers that normalise over a micro-batch where replicas split micro-batches: each replica then
	// normalises over its own slice. Without it such a plan is refused.
	PerSlice bool
	// AnyOrder admits Programs that sum gradients in another order than that of micro-batches. Without it they are
	// refused, as their bits are not those of one worker.
	AnyOrder bool

	EvalEvery int // steps between two evaluations; 0: only at the end, if there is test data
	EvalRows  int // of the test data; 0: all

	// Replay, of weight policy asp, makes the updates in the order that another run recorded: its Timeline.Applied, which
	// has all steps of this run. The weights then have the same bits. nil: in the order in which gradients arrive.
	Replay []trace.Applied
	// ReplaySeen does the same for elastic averaging with the reference beside the pipelines: the other run's
	// Timeline.Seen.
	ReplaySeen []trace.Seen
}

// Machine says where the workers are, and what those of this process compute with.
type Machine struct {
	World *process.World // nil: all workers are in this process
	// Place is what the run may change of its process, and of the processors that it has; nil: nothing.
	Place            *place.Policy
	ThreadsPerWorker int // of one operator; 0: 1
	Cores            int // that the workers of this process share; 0: each has its own
	// Ahead is how many computations may be queued on a device when it is given the next one; 0: none. It is for devices
	// that return before they have computed anything, and shared cores require 0.
	Ahead int
}

// Wire says how workers send each other messages, and who sums gradients over replicas.
type Wire struct {
	// Carriers makes what messages between the workers go over; nil: wire.InProcess. The run closes them.
	Carriers func(workers int) ([]wire.Carrier, error)
	// Slots is how many messages from one worker to another may be in flight or wait to be received; 0: as many as
	// the Program can have there in any timing (check.InFlight). A Program that would block with so few is refused.
	Slots int
	// BucketBytes is how many bytes of gradients replicas sum at once, at least; 0: the plan's, or schedule.BucketBytes.
	BucketBytes int64
	// Meet has another library sum gradients over replicas, in an order of its own: all replicas are left with
	// the same bits, but not with those of one worker. nil: in rank order.
	Meet process.Meet
}

// Resuming says which checkpoint a run goes on from. The zero value is a run from the start.
type Resuming struct {
	At string // a checkpoint, or a directory of them
	// Open is what At names, where that is open already or on several hosts; Train closes it. nil: Train opens it.
	Open *checkpoint.Checkpoint
	// Averaged admits a checkpoint of another number of pipelines than the run's: all begin at the reference, with the
	// average of the optimizer states. Without it such a checkpoint is refused.
	Averaged bool
}

// Watching says when workers are taken for slow, late or stalled.
type Watching struct {
	// ProfileS is how long each worker should compute in a step, in seconds, by which stragglers are found; nil: nobody
	// looks for any, nor under asp, where each worker goes at its own pace.
	ProfileS []float64
	// StallAfter is how long a run waits while nothing happens: while all workers wait, while a process gets ready or
	// carries out an order, while it answers or leaves; 0: 5 minutes. Bytes that move are something that happens, so
	// that slow links and disks may take longer. A run in which no worker can ever go on ends at once.
	StallAfter time.Duration
	// LateAfter is how long a step takes at least before Hooks.OnLate is called; 0: 5 seconds.
	LateAfter time.Duration
}

// Keeping says what the Result has of a run beside its numbers.
type Keeping struct {
	Steps    int            // last steps whose events are kept in full; 0: 8
	WantStep func(int) bool // further steps to keep in full
	Weights  bool           // the final parameters and buffers
}

// Config is a training run.
type Config struct {
	Model  *model.Model
	Plan   *plan.Plan
	Engine engine.Engine
	Data   Data

	Train   Training
	Machine Machine
	Wire    Wire
	// Checkpoint periods, like Train.EvalEvery, are drains in the Programs, whether or not anybody stops there.
	Checkpoint Checkpointing
	Resume     Resuming
	Watch      Watching
	Keep       Keeping
	Hooks      Hooks

	// Next is asked at every boundary between Programs for the lowered Program of the next
	// `steps` steps at most (its Repeat times its Period); nil: the plan's own schedule. The
	// Timeline is that of the run so far.
	Next func(so trace.Timeline, steps int) (*schedule.Program, error)
	// Begin is called once, when workers and the first Program are ready, and no step has been taken. Its error ends the
	// run as one of the run's own would.
	Begin func() error
	// Class names the kind of an error for the other processes (control.Failed); nil: none.
	Class func(error) string

	without process.Wait // left out, by a test
	unit    int          // steps by whose multiples a Program may end (StopUnit); filled in
	longest int          // steps of one Program, at most; filled in, from what a test says or maxRepeat
	// who may start; nil: a machine.Process
	decide func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error)
}

// Result is what a run leaves.
type Result struct {
	Timeline    trace.Timeline
	Steps       int     // done in all
	Loss        float64 // of the last step done in this run
	Stopped     bool    // the context ended it before Steps; it finished its step and saved itself
	Checkpoint  string  // directory of the last checkpoint written; empty: none
	Leaked      int     // handles still open when the devices were closed: a bug of ours if not 0
	PeakBytes   []int64 // by worker, by the device's allocator
	BubbleMean  float64 // over all steps of this run
	BusySeconds float64 // computing, summed over workers and steps
	Weights     map[string]process.Weight
}

const (
	defaultKeepSteps  = 8
	defaultStallAfter = 5 * time.Minute
	defaultLateAfter  = 5 * time.Second
)

// usual is the carriers of a run that does not say; tests put others in their place.
var usual = func(*Config) func(workers int) ([]wire.Carrier, error) { return wire.InProcess }

// filled is the config with its defaults, or what is wrong with it.
func (c Config) filled() (Config, error) {
	if err := c.contradicts(); err != nil {
		return c, err
	}
	if err := c.trains(); err != nil {
		return c, err
	}
	c.longest = cmp.Or(c.longest, maxRepeat)
	// Programs are the leader's: other processes know no schedule that was read from a file. With Next they are none of
	// the plan's.
	leads := c.Machine.World == nil || c.Machine.World.Rank == 0
	if leads && (c.Next == nil || c.Checkpoint.ByStage) {
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1)
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

// contradicts refuses numbers out of their ranges, and settings that are not of each other.
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
	case c.Watch.StallAfter < 0 || c.Keep.Steps < 0 || c.Train.EvalRows < 0:
		return fmt.Errorf("run: a stall after %v, %d steps kept, %d rows evaluated: none may be negative", c.Watch.StallAfter,
			c.Keep.Steps, c.Train.EvalRows)
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

// trains refuses a plan, an optimizer and a rate that the engine does not train the model with.
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

// defaults gives what is not said its usual value.
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

// splits says whether a plan gives replicas slices of micro-batches.
func splits(p *plan.Plan) bool {
	return p.Replication == string(schedule.Split) && slices.ContainsFunc(p.Stages,
		func(s plan.Stage) bool { return len(s.Devices) > 1 })
}
