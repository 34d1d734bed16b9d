package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// job is what all of a run look at and nobody changes.
type job struct {
	config    Config
	engine    engine.Engine
	model     *model.Model
	plan      *plan.Plan
	graph     *stage.Graph
	layers    []nn.Layer
	data      Data
	optimizer optim.Settings
	rate      optim.Rate
	clip      float64
	threads   int
	placement [][]int // stage -> workers, by replica
	evalRows  int
	from      *checkpoint.Checkpoint // nil: from the start
	world     *World
}

func newJob(c Config) (*job, error) {
	graph, err := stage.NewGraph(c.Model)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	layers, err := nn.Build(c.Model)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	_, settings := schedule.FromPlan(c.Plan)
	j := &job{
		config: c, engine: c.Engine, model: c.Model, plan: c.Plan, graph: graph, layers: layers, data: c.Data,
		optimizer: c.Optimizer, rate: c.Rate, clip: c.Clip, threads: c.ThreadsPerWorker, placement: settings.Placement,
		world: c.World,
	}
	if t := c.Data.Test; t != nil {
		if j.evalRows = t.Len(); c.EvalRows > 0 {
			j.evalRows = min(j.evalRows, c.EvalRows)
		}
		if j.evalRows < 1 {
			return nil, fmt.Errorf("run: the test data is empty")
		}
	}
	if c.Resume != "" {
		if j.from, err = openCheckpoint(c); err != nil {
			return nil, err
		}
	}
	return j, nil
}

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
		Layers: j.layers, Seed: j.config.Seed, States: j.optimizer.States(), Segment: p.Recompute.Segment(p.LastLayer - p.FirstLayer + 1),
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
		Cores: j.config.Cores, ThreadsPerWorker: j.threads, Stream: overlaps(j.plan),
	}
}
