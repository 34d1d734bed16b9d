package process

import (
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// Job describes a run for its processes. All get the same Job, except for World and Carriers. From, Store, Claim,
// Devices.Cores, Keep.OnPart and Keep.OnTested may also differ.
type Job struct {
	Engine    engine.Engine
	Model     *model.Model
	Plan      *plan.Plan // each stage is a range of the Graph's layers, in which a divided layer has several pieces
	Network   Network
	Placement [][]int // stage -> workers, by replica
	Train     data.Split
	Tests     Tests
	Updates   Updates
	Devices   Devices
	Sums      Sums
	Keep      Keep
	From      *checkpoint.Checkpoint           // nil means from the start
	Store     *checkpoint.Store                // this process's checkpoint folder; nil means that nothing is saved
	Claim     func(arrange func() error) error // see Checkpointing.Claim of package run
	Class     func(error) string               // names the kind of an error for other processes; may be nil
	World     *World
	Carriers  func(workers int) ([]wire.Carrier, error)
	Decide    func(p *schedule.Program, workers []int, o machine.Options) (Gate, error) // makes the gate
	Without   Wait                                                                      // the wait that a test disables
}

// Network is the Model as stages compute it, with divided layers in pieces.
type Network struct {
	Graph  *stage.Graph
	Layers []nn.Layer // the layers of the Graph
	Seed   uint64     // for initial values and masks
}

// Tests is the data of evaluations.
type Tests struct {
	Data data.Split // nil means that nothing is evaluated
	Rows int
}

// Updates says how parameters are updated.
type Updates struct {
	Optimizer optim.Settings
	Rate      optim.Rate
	Clip      float64 // limit of the gradients' norm; 0 means none
}

// Devices says what the workers of this process compute with.
type Devices struct {
	Threads int // threads of each device
	Cores   int // cores that the devices share; 0 means that each has its own
	Slots   int // slots of each edge; 0 means no bound
	Ahead   int // computations that may be queued on a device when it gets the next one
}

// Sums says how replicas sum gradients.
type Sums struct {
	BucketBytes int64 // least number of bytes per sum, except for the last sum
	Meet        Meet  // joins another library's groups; nil means millrace's own sums, in rank order
}

// Keep says what a run records and reports.
type Keep struct {
	Steps    int // how many of the last steps are recorded in full
	WantStep func(int) bool
	Moments  int // the largest number of further steps, spread over the run, that are recorded in full
	Weights  bool
	OnPart   func(step int) // called for every step when this process's part is complete; may be nil
	// OnTested is called during an evaluation by a worker that computes the loss. `done` is the number of micro-batches
	// that are complete in this process, and `of` is the number of all micro-batches of the evaluation. OnTested may be
	// nil.
	OnTested func(done, of int)
}

// Close closes the checkpoint that the run resumes from.
func (j *Job) Close() error {
	if j.From == nil {
		return nil
	}
	return j.From.Close()
}

// places returns the replicas of stages that a worker holds.
func (j *Job) places(worker int) []position {
	if j.Served() {
		return j.placeServed(worker)
	}
	var held []position
	for p := range j.Models() {
		for s, on := range j.Placement {
			for r, w := range on {
				if w == worker {
					held = append(held, position{pipeline: int16(p), stage: int32(s), replica: int16(r)})
				}
			}
		}
	}
	return held
}

func (j *Job) stageConfig(dev engine.Device, at position) stage.Config {
	p := j.Plan.Stages[at.stage]
	c := stage.Config{
		Device: dev, Float: j.Engine.Float(), Graph: j.Network.Graph, First: p.FirstLayer, Last: p.LastLayer,
		Layers: j.Network.Layers, Seed: j.Network.Seed,
		States: j.Updates.Optimizer.States(), Shown: j.Updates.Optimizer.Shown(),
		Segment: p.Recompute.Segment(p.LastLayer - p.FirstLayer + 1),
	}
	if at.pipeline > 0 && at.pipeline == j.shown() && !j.Served() || j.Served() && at.pipeline == 0 {
		c.States, c.Shown = nil, "" // no optimizer for the reference, nor for workers that fetch their weights
	}
	if j.From != nil {
		of := at.pipeline
		if j.Served() {
			of = j.shown()
		}
		c.Initial = func(name string) (engine.DType, []int64, []byte, error) {
			t, err := j.resumed(of, name)
			return t.DType, t.Shape, t.Data, err
		}
		c.Before = func(layer int) int {
			return j.From.Manifest.UpdatesOf(j.Network.Graph.Model.Layers[layer].Whole())
		}
	}
	return c
}

// sum is the addition that collectives use.
func (j *Job) sum(dst, src []byte, dtype wire.DType) error {
	return j.Engine.SumInto(dst, src, engine.DTypeNamed(dtype.String()))
}

// TestRows returns the number of rows in a micro-batch of an evaluation.
func (j *Job) TestRows(micro int) int {
	return min(j.Plan.MicroBatch, j.Tests.Rows-micro*j.Plan.MicroBatch)
}

// TestMicros returns the number of micro-batches in an evaluation.
func (j *Job) TestMicros() int {
	return (j.Tests.Rows + j.Plan.MicroBatch - 1) / j.Plan.MicroBatch
}

// LastReplicas returns the number of replicas of the last stage.
func (j *Job) LastReplicas() int { return len(j.Placement[len(j.Placement)-1]) }

// Timeline returns an empty Timeline for this run.
func (j *Job) Timeline() trace.Timeline {
	t := trace.Timeline{
		Version: trace.Version, Source: "run", Model: j.Model.Name, Workers: len(j.World.Workers), Stages: len(j.Plan.Stages),
		ThreadsPerWorker: j.Devices.Threads, Stream: j.overlaps(),
	}
	switch of := j.World.WorkersOf(); {
	case len(of) == 1:
		t.Cores = j.Devices.Cores
	case j.Devices.Cores > 0:
		t.Pools = []trace.Pool{{Cores: j.Devices.Cores, Workers: of[j.World.Rank]}}
	}
	return t
}

// overlaps reports whether steps begin before earlier ones have ended, as schedule.Program.Overlaps does.
func (j *Job) overlaps() bool {
	return !schedule.Policy(j.Plan.Weights).Flushes() || j.Together() > 1
}

// A Wait is a place where a run blocks until a device has finished some work or has received its input. On a CPU
// none of them ever blocks. A test disables each in turn on devices with delays, and each missing wait is detected.
// These waits follow from the others and have no name:
//
//   - a receive takes over tensors at once: a message leaves when its tensors are complete (waitSent, in
//     package wire), so they are complete on arrival
//
//   - collectives between stages and over replicas read host memory, whose owners have waited for their devices
//
//   - an update reads gradients that its own device has computed or received, in the device's order
//
//   - a computation reads what its own device has computed, in the device's order; the next one is queued when
//     at most Ahead earlier ones are not done (waitDone)
//
//   - evaluations, and the distance of pipelines from their reference, read numbers in one place each, which
//     waits by itself: Device.Item, Stage.Apart
//
//   - tensors are freed in the device's order
type Wait string

const (
	waitSent      Wait = "tensors of a message"                   // before the message leaves
	waitGradients Wait = "gradients that replicas sum"            // before they are read in host memory
	waitTied      Wait = "gradients of tied parameters"           // before they are read in host memory
	waitLanded    Wait = "sums that go back"                      // until the device has read them
	waitSquares   Wait = "squares of gradients"                   // before the global norm
	waitLosses    Wait = "losses"                                 // before their minibatch's gradients are used
	waitDone      Wait = "computations"                           // before they are reported as done
	WaitValidated Wait = "computations in front of a step's mark" // where updates are validated later
	waitSaved     Wait = "tensors of a checkpoint"
	waitWeights   Wait = "weights that a run leaves"
	WaitSteps     Wait = "steps of pipelines for a reference beside them"
)

// Waits lists every Wait.
var Waits = []Wait{
	waitSent, waitGradients, waitTied, waitLanded, waitSquares, waitLosses, waitDone, WaitValidated, waitSaved,
	waitWeights, WaitSteps,
}

// waits reports whether a wait is carried out; only a test disables one.
func (j *Job) waits(at Wait) bool { return j.Without != at }
