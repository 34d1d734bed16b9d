package run

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

// job is what every process of a run is told of it, all alike but for the world that says which one it is.
type job struct {
	engine      engine.Engine
	model       *model.Model
	plan        *plan.Plan
	graph       *stage.Graph
	layers      []nn.Layer
	train, test data.Split // test: nil where nothing is evaluated
	optimizer   optim.Settings
	rate        optim.Rate
	clip        float64
	seed        uint64
	threads     int
	cores       int     // that the workers of this process share; 0: each has its own
	slots       int     // of an edge; 0: no bound
	ahead       int     // computations that a device may have to do yet when it is given the next one
	bucketBytes int64   // of gradients that replicas sum at once, at least
	placement   [][]int // stage -> workers, by replica
	evalRows    int
	keepSteps   int
	wantStep    func(int) bool
	keepWeights bool
	from        *checkpoint.Checkpoint // nil: from the start
	world       *World
	carriers    func(workers int) ([]wire.Carrier, error)
	decide      func(p *schedule.Program, workers []int, o machine.Options) (Gate, error) // who may start
	refuse      func(*schedule.Program) error                                             // what cannot be executed
}

// close closes the checkpoint that the run goes on from.
func (j *job) close() error {
	if j.from == nil {
		return nil
	}
	return j.from.Close()
}

// places is the replicas of stages that a worker holds.
func (j *job) places(worker int) []position {
	var held []position
	for p := range j.models() {
		for s, on := range j.placement {
			for r, w := range on {
				if w == worker {
					held = append(held, position{pipeline: int16(p), stage: int32(s), replica: int16(r)})
				}
			}
		}
	}
	return held
}

func (j *job) stageConfig(dev engine.Device, at position) stage.Config {
	p := j.plan.Stages[at.stage]
	c := stage.Config{
		Device: dev, Float: j.engine.Float(), Graph: j.graph, First: p.FirstLayer, Last: p.LastLayer,
		Layers: j.layers, Seed: j.seed, States: j.optimizer.States(), Segment: p.Recompute.Segment(p.LastLayer - p.FirstLayer + 1),
	}
	if at.pipeline > 0 && at.pipeline == j.shown() {
		c.States = nil // the reference has no optimizer
	}
	if j.from != nil {
		c.Initial = func(name string) (engine.DType, []int64, []byte, error) {
			t, err := j.resumed(at.pipeline, name)
			return t.DType, t.Shape, t.Data, err
		}
		c.Before = func(layer int) int {
			return j.from.Manifest.UpdatesOf(j.model.Layers[layer].Name)
		}
	}
	return c
}

// sum is what collectives add with.
func (j *job) sum(dst, src []byte, dtype wire.DType) error {
	return j.engine.SumInto(dst, src, engine.DTypeNamed(dtype.String()))
}

// testRows is how many rows a micro-batch of an evaluation has.
func (j *job) testRows(micro int) int {
	return min(j.plan.MicroBatch, j.evalRows-micro*j.plan.MicroBatch)
}

// testMicros is how many micro-batches an evaluation has.
func (j *job) testMicros() int {
	return (j.evalRows + j.plan.MicroBatch - 1) / j.plan.MicroBatch
}

// lastReplicas is how many replicas the last stage has.
func (j *job) lastReplicas() int { return len(j.placement[len(j.placement)-1]) }

// timeline is one of this run that has nothing in it yet.
func (j *job) timeline() trace.Timeline {
	return trace.Timeline{
		Version: trace.Version, Source: "run", Model: j.model.Name, Workers: len(j.world.Workers), Stages: len(j.plan.Stages),
		Cores: j.cores, ThreadsPerWorker: j.threads, Stream: j.overlaps(),
	}
}

// overlaps says whether steps begin before the ones in front of them have ended, as
// schedule.Program.Overlaps does.
func (j *job) overlaps() bool {
	return !schedule.Policy(j.plan.Weights).Flushes() || j.together() > 1
}
