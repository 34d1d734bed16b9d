package run

import (
	"errors"
	"fmt"
	"sync"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// job is what all workers of a run look at and none of them changes, and what they
// report to the coordinator.
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

	store checkpoint.Store
	draft *checkpoint.Draft // of the checkpoint Program under way

	mu      sync.Mutex
	updates map[string]int // of the draft: by layer, where they are not its steps
	tests   []tested       // by evaluation micro-batch
	apart   float64        // at this evaluation: see trace.Evaluation
}

// tested is what one evaluation micro-batch gave.
type tested struct {
	rows          int
	loss, correct float64
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
		store: checkpoint.Store{Dir: c.Checkpoint.Dir, Keep: c.Checkpoint.Keep},
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
		if err := j.store.Continue(j.from); err != nil {
			return nil, errors.Join(fmt.Errorf("run: %w", err), j.close())
		}
	}
	return j, nil
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
	if j.config.Watch != nil {
		c.Watch = j.config.Watch(int(at.stage))
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
func (j *job) sum(dst, src []byte, dtype string) error {
	return j.engine.SumInto(dst, src, engine.DTypeNamed(dtype))
}

// evaluated files what a micro-batch of an evaluation gave.
func (j *job) evaluated(index, rows int, loss, correct float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tests[index] = tested{rows, loss, correct}
}

// testRows is how many rows a micro-batch of an evaluation has.
func (j *job) testRows(micro int) int {
	return min(j.plan.MicroBatch, j.evalRows-micro*j.plan.MicroBatch)
}

// testMicros is how many micro-batches an evaluation has.
func (j *job) testMicros() int {
	return (j.evalRows + j.plan.MicroBatch - 1) / j.plan.MicroBatch
}

// verdict is the evaluation over all micro-batches, added in ascending order.
func (j *job) verdict(step int) trace.Evaluation {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := trace.Evaluation{Step: step}
	perRow := 1
	for _, in := range j.model.Inputs {
		if in.Name == "target" {
			perRow = int(in.Elements())
		}
	}
	rows, correct := 0, 0.0
	for _, t := range j.tests {
		rows += t.rows
		e.Loss += t.loss * float64(t.rows)
		correct += t.correct
	}
	e.Loss /= float64(rows)
	e.Samples, e.Correct = rows*perRow, int(correct)
	return e
}
