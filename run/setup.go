package run

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// newJob returns the description of a run for its processes. The caller closes the checkpoint that the run resumes
// from.
func newJob(c Config) (*process.Job, error) {
	inPieces, of, err := pieces(c.Plan, c.Model)
	if err != nil {
		return nil, err
	}
	graph, err := stage.NewGraph(of)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	layers, err := nn.Build(of)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	_, settings := schedule.FromPlan(c.Plan)
	j := &process.Job{
		Engine: c.Engine, Model: c.Model, Plan: inPieces, Placement: settings.Placement, Train: c.Data.Train,
		Network: process.Network{Graph: graph, Layers: layers, Seed: c.Train.Seed},
		Tests:   process.Tests{Data: c.Data.Test},
		Updates: process.Updates{Optimizer: c.Train.Optimizer, Rate: c.Train.Rate, Clip: c.Train.Clip},
		Devices: process.Devices{Threads: c.Machine.ThreadsPerWorker, Cores: c.Machine.Cores, Slots: c.Wire.Slots,
			Ahead: c.Machine.Ahead},
		Sums: process.Sums{BucketBytes: c.Wire.BucketBytes, Meet: c.Wire.Meet},
		Keep: process.Keep{Steps: c.Keep.Steps, WantStep: c.Keep.WantStep, Moments: c.Keep.Moments,
			Weights: c.Keep.Weights, OnPart: c.Hooks.OnPart, OnTested: c.Hooks.OnTested},
		World: c.Machine.World, Class: c.Class, Carriers: c.Wire.Carriers, Decide: c.decide, Without: c.without,
	}
	if c.Checkpoint.Dir != "" {
		j.Store = &checkpoint.Store{Dir: c.Checkpoint.Dir, Keep: c.Checkpoint.Keep}
		j.Claim = c.Checkpoint.Claim
	}
	if t := c.Data.Test; t != nil {
		if j.Tests.Rows = t.Len(); c.Train.EvalRows > 0 {
			j.Tests.Rows = min(j.Tests.Rows, c.Train.EvalRows)
		}
		if j.Tests.Rows < 1 {
			return nil, fmt.Errorf("run: the test data is empty")
		}
	}
	if c.Resume.At != "" {
		if j.From, err = openCheckpoint(c); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// openCheckpoint opens the checkpoint to resume from, and returns an error if it does not fit this run.
func openCheckpoint(c Config) (from *checkpoint.Checkpoint, err error) {
	if from = c.Resume.Open; from == nil {
		if from, err = checkpoint.Open(c.Resume.At); err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
	}
	if err := c.fits(from); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return from, nil
}

// fits returns an error for a checkpoint that does not fit this run.
func (c *Config) fits(from *checkpoint.Checkpoint) error {
	m := from.Manifest
	refuse := func(field string, has, want any) error {
		return fmt.Errorf("run: checkpoint %s: %s is %v; this run has %v", from.Path, field, has, want)
	}
	switch {
	case m.ModelID != c.Model.ID():
		return refuse("model", m.Model+" ("+m.ModelID+")", c.Model.Name+" ("+c.Model.ID()+")")
	case m.Float != c.Engine.Float().String():
		return refuse("float", m.Float, c.Engine.Float())
	case m.Batch != c.Plan.Batch():
		return refuse("batch", m.Batch, c.Plan.Batch())
	case m.Pipelines() != c.Plan.Together() && !c.Resume.Averaged:
		return refuse("pipelines side by side", m.Pipelines(),
			fmt.Sprintf("%d; --resume-averaged begins all of them at the average", c.Plan.Together()))
	case m.Seed != c.Train.Seed:
		return refuse("seed", m.Seed, c.Train.Seed)
	case m.Optimizer.Kind != c.Train.Optimizer.Kind:
		return refuse("optimizer", m.Optimizer.Kind, c.Train.Optimizer.Kind)
	case len(m.Optimizer.States()) != len(c.Train.Optimizer.States()): // one setting has momentum, the other has not
		return refuse("the optimizer's state", m.Optimizer.States(), c.Train.Optimizer.States())
	case m.Optimizer.AverageFrom != c.Train.Optimizer.AverageFrom &&
		min(m.Optimizer.AverageFrom, c.Train.Optimizer.AverageFrom) <= m.Steps: // at least one of the averages has begun
		return refuse("the first update in the average", m.Optimizer.AverageFrom, c.Train.Optimizer.AverageFrom)
	case m.Steps > c.Train.Steps:
		return refuse("steps", m.Steps, fmt.Sprintf("%d in all; ask for more", c.Train.Steps))
	case c.Checkpoint.ByStage && c.unit > 0 && m.Steps%c.unit != 0 && m.Steps < c.Train.Steps:
		return refuse("steps", m.Steps, fmt.Sprintf("save mode stage, and stages that update for %d at once: go on from a "+
			"multiple, or save with a drain", c.unit))
	}
	return nil
}
