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

// Job describes a run to each of its processes. All get the same, except the World, which says which process this is.
type Job struct {
	Engine    engine.Engine
	Model     *model.Model
	Plan      *plan.Plan // its stages are runs of the Graph's layers, pieces of divided ones among them
	Network   Network
	Placement [][]int // stage -> workers, by replica
	Train     data.Split
	Tests     Tests
	Updates   Updates
	Devices   Devices
	Sums      Sums
	Keep      Keep
	From      *checkpoint.Checkpoint           // nil: from the start
	Store     *checkpoint.Store                // this process's folder of checkpoints; nil: none is saved
	Claim     func(arrange func() error) error // arranges a folder that is not the leader's; nil: nobody asks
	Class     func(error) string               // what kind of error one is, for the other processes; nil: nobody asks
	World     *World
	Carriers  func(workers int) ([]wire.Carrier, error)
	Decide    func(p *schedule.Program, workers []int, o machine.Options) (Gate, error) // who may start
	Without   Wait                                                                      // left out, by a test
}

// Network is the Model as stages compute it, with divided layers in pieces.
type Network struct {
	Graph  *stage.Graph
	Layers []nn.Layer // the Graph's
	Seed   uint64     // of first values and masks
}

// Tests is what evaluations are of.
type Tests struct {
	Data data.Split // nil: nothing is evaluated
	Rows int
}

// Updates is how parameters are stepped.
type Updates struct {
	Optimizer optim.Settings
	Rate      optim.Rate
	Clip      float64 // most that the norm of gradients may be; 0: any
}

// Devices is what the workers of this process compute with.
type Devices struct {
	Threads int // of each
	Cores   int // that they share; 0: each has its own
	Slots   int // of an edge; 0: no bound
	Ahead   int // computations that a device may have to do yet when it is given the next one
}

// Sums is how replicas sum gradients.
type Sums struct {
	BucketBytes int64 // at once, at least
	Meet        Meet  // with whom they do; nil: with each other, in rank order
}

// Keep says what a run keeps, and what it reports as it goes on.
type Keep struct {
	Steps    int // in the record
	WantStep func(int) bool
	Weights  bool
	OnPart   func(step int) // told of every step whose part of this process stands; nil: nobody is
}

// Close closes the checkpoint that the run goes on from.
func (j *Job) Close() error {
	if j.From == nil {
		return nil
	}
	return j.From.Close()
}

// places is the replicas of stages that a worker holds.
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
		c.States, c.Shown = nil, "" // the reference has no optimizer, nor have those that fetch their weights
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

// sum is what collectives add with.
func (j *Job) sum(dst, src []byte, dtype wire.DType) error {
	return j.Engine.SumInto(dst, src, engine.DTypeNamed(dtype.String()))
}

// TestRows is how many rows a micro-batch of an evaluation has.
func (j *Job) TestRows(micro int) int {
	return min(j.Plan.MicroBatch, j.Tests.Rows-micro*j.Plan.MicroBatch)
}

// TestMicros is how many micro-batches an evaluation has.
func (j *Job) TestMicros() int {
	return (j.Tests.Rows + j.Plan.MicroBatch - 1) / j.Plan.MicroBatch
}

// LastReplicas is how many replicas the last stage has.
func (j *Job) LastReplicas() int { return len(j.Placement[len(j.Placement)-1]) }

// Timeline is one of this run that has nothing in it yet.
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

// overlaps says whether steps begin before the ones in front of them have ended, as
// schedule.Program.Overlaps does.
func (j *Job) overlaps() bool {
	return !schedule.Policy(j.Plan.Weights).Flushes() || j.Together() > 1
}

// A Wait is a place where a run blocks until a device has come somewhere, or has got what it is given. On a CPU none
// of them ever blocks; a test leaves out one after the other on devices that are late, and each shows. Waits that
// follow from these have no name:
//
//   - a receive takes tensors over at once: a message leaves when its tensors are complete (waitSent, in
//     package wire), so it arrives when they are
//   - collectives between stages and over replicas read host memory of members that have waited for their own
//   - an update reads gradients that its own device has made, or landed, in its order
//   - a computation reads what its own device has made, in its order; the next one is told to the device when
//     at most Ahead of those before it are not done (waitDone)
//   - evaluations, and the distance of pipelines from their reference, read numbers by Item and by ToHost in
//     one place each, which wait by themselves: Device.Item, Stage.Apart
//   - tensors are freed in the device's order
type Wait string

const (
	waitSent      Wait = "tensors of a message"                   // in front of its leaving
	waitGradients Wait = "gradients that replicas sum"            // in host memory
	waitTied      Wait = "gradients of tied parameters"           // in host memory
	waitLanded    Wait = "sums that go back"                      // to the device: it must be told
	waitSquares   Wait = "squares of gradients"                   // in front of the global norm
	waitLosses    Wait = "losses"                                 // in front of what is made of gradients
	waitDone      Wait = "computations"                           // in front of saying that they are done
	WaitValidated Wait = "computations in front of a step's mark" // where updates are validated later
	waitSaved     Wait = "tensors of a checkpoint"
	waitWeights   Wait = "weights that a run leaves"
	WaitSteps     Wait = "steps of pipelines for a reference beside them"
)

// Waits lists them.
var Waits = []Wait{
	waitSent, waitGradients, waitTied, waitLanded, waitSquares, waitLosses, waitDone, WaitValidated, waitSaved,
	waitWeights, WaitSteps,
}

// waits says whether a wait is made: all are, but in a test that leaves one out.
func (j *Job) waits(at Wait) bool { return j.Without != at }
