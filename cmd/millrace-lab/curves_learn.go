package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// learning is the part of bench curves that does not depend on the clock: how well each method
// learns from as many samples.
type learning struct {
	*curves.Setting
	engine engine.Engine
	set    *data.Set // Train cut to the samples of an epoch
	epochs float64
	at     int // trainings at a time
	log    io.Writer
}

// learnedFrom is everything that a training's outcome depends on: where it is the same, a training
// of an earlier run of the command stands for another.
type learnedFrom struct {
	Model     string         `json:"model"`
	Data      string         `json:"data"`
	Rows      int            `json:"rows"` // of an epoch
	EvalRows  int            `json:"eval_rows"`
	Epochs    float64        `json:"epochs"`
	EvalEvery int            `json:"eval_every"` // steps
	Seed      uint64         `json:"seed"`
	Weights   string         `json:"weights"`
	Schedule  string         `json:"schedule"`
	Stages    []int          `json:"stages"` // first layers
	Batch     int            `json:"batch"`
	Micros    int            `json:"micro_batches"`
	Elastic   *plan.Elastic  `json:"elastic,omitempty"`
	Optimizer optim.Settings `json:"optimizer"`
	Rate      optim.Rate     `json:"rate"`
	Clip      float64        `json:"clip,omitempty"`
}

// task is one training of one method.
type task struct {
	method curves.Method
	job    job.Job
	plan   *plan.Plan
	of     learnedFrom
	steps  int
}

// stagesByOperations is a model's stages for learning: the split that is fixed, or the
// partitioner's for layers that take as long as they have operations.
func stagesByOperations(ctx context.Context, j *job.Job, m *model.Model) (*plan.Plan, error) {
	fix, err := prepare.Overrides(j, prepare.NamesOf(m))
	if err != nil {
		return nil, err
	}
	p, err := profile.Analytic(m, map[string]cluster.DeviceType{"flat": curves.FlatDevice}, []int{j.Batch}, j.Optimizer.Kind, len(j.Optimizer.States()))
	if err != nil {
		return nil, cli.BadInput(err)
	}
	base, err := avgpipe.Partition(ctx, &avgpipe.Workload{Profile: p, Cluster: cluster.Local("flat", j.Workers, j.Workers, 0, 1e-9, 1e15, 1e15), Batch: j.Batch}, fix)
	return base, cli.BadInput(err)
}

// tasks are all trainings, seed by seed, so that what is there early compares all methods.
func (l *learning) tasks() ([]task, error) {
	var out []task
	for seed := range l.Seeds {
		for _, m := range l.Methods {
			t := l.task(m, l.Job.Seed+uint64(seed))
			if err := t.job.Rate.Check(); err != nil {
				return nil, cli.BadInput(fmt.Errorf("%s: %w", m.Name, err))
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func (l *learning) task(m curves.Method, seed uint64) task {
	own := m.Job(l.Job, seed)
	micros := 1 // their number changes rounding alone, and one is cheapest
	if l.Model.NormalisesMicroBatches() != nil {
		micros = l.Micros
		if m.Split { // micro-batches as large as the others', as far as that goes
			micros = max(1, micros/m.Pipelines())
			for own.Batch%micros != 0 {
				micros--
			}
		}
	}
	pl := m.Plan(l.Base, own.Batch, micros)
	if m.Policy == schedule.Sync || m.Policy == schedule.Elastic {
		// On one worker: bit-equal to every split into stages, and cheaper.
		one := alone(l.Model, pl.MicroBatch, own.Batch)
		if pl.Elastic != nil {
			one.Schedule, one.Weights, one.Elastic, one.Stages[0].Warmup = pl.Schedule, pl.Weights, pl.Elastic, 0
		}
		pl = one
	}
	rows, samples := float64(l.set.Train.Len()), float64(pl.StepSamples())
	every := max(1, int(math.Round(rows/float64(l.Evals)/samples)))
	steps := max(1, int(math.Ceil(l.epochs*rows/samples/float64(every)))) * every
	own.Rate.Total = steps
	of := learnedFrom{
		Model: l.Model.ID(), Data: own.Data, Rows: l.set.Train.Len(), EvalRows: own.EvalRows, Epochs: l.epochs, EvalEvery: every,
		Seed: seed, Weights: pl.Weights, Schedule: pl.Schedule, Batch: own.Batch, Micros: pl.MicroBatches, Elastic: pl.Elastic,
		Optimizer: own.Optimizer, Rate: own.Rate, Clip: own.Clip,
	}
	for _, st := range pl.Stages {
		of.Stages = append(of.Stages, st.FirstLayer)
	}
	return task{method: m, job: own, plan: pl, of: of, steps: steps}
}

// learn trains what the file does not have yet, several at a time, and returns all trainings by
// method, in the order of seeds.
func (l *learning) learn(ctx context.Context, file *curves.Trainings) (map[string][]curves.Training, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tasks, err := l.tasks()
	if err != nil {
		return nil, err
	}
	todo := make(chan task)
	var wait sync.WaitGroup
	for range l.at {
		wait.Go(crash.Caught(func() {
			for t := range todo {
				if err := l.train(ctx, t, file); err != nil {
					cancel(err)
				}
			}
		}))
	}
	missing := 0
	for _, t := range tasks {
		_, found, err := file.Find(t.of)
		if err != nil {
			cancel(err)
		}
		if found || ctx.Err() != nil {
			continue
		}
		missing++
		select {
		case todo <- t:
		case <-ctx.Done():
		}
	}
	close(todo)
	wait.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	fmt.Fprintf(l.log, "  %d trainings, %d of them from the file\n", len(tasks), len(tasks)-missing)
	return l.found(file)
}

// found is the trainings that a file has, by method.
func (l *learning) found(file *curves.Trainings) (map[string][]curves.Training, error) {
	tasks, err := l.tasks()
	if err != nil {
		return nil, err
	}
	out := map[string][]curves.Training{}
	for _, t := range tasks {
		one, ok, err := file.Find(t.of)
		if err != nil {
			return nil, err
		}
		if ok {
			out[t.method.Name] = append(out[t.method.Name], one)
		}
	}
	return out, nil
}

// train is one training, written to the file when it has ended. One whose loss is no number any
// more has ended too: that is what its method comes to.
func (l *learning) train(ctx context.Context, t task, file *curves.Trainings) error {
	set, err := l.shuffled(t.job.Seed)
	if err != nil {
		return err
	}
	one := curves.Training{Method: t.method.Name, Seed: t.job.Seed}
	result, err := run.Train(ctx, run.Config{
		Model: l.Model, Plan: t.plan, Engine: l.engine, Data: run.Data{Train: data.Prefetch(set.Train, 4), Test: set.Test},
		Optimizer: t.job.Optimizer, Rate: t.job.Rate, Clip: t.job.Clip, Seed: t.job.Seed, Steps: t.steps,
		Place: &place.Policy{}, ThreadsPerWorker: t.job.ThreadsPerWorker, EvalEvery: t.of.EvalEvery, EvalRows: t.job.EvalRows, KeepSteps: 1,
	})
	switch {
	case errors.Is(err, process.ErrNotFinite):
		one.Diverged = err.Error()
	case err != nil:
		return fmt.Errorf("%s, seed %d: %w", t.method.Name, t.job.Seed, err)
	case result.Stopped:
		return context.Cause(ctx)
	}
	rows := float64(set.Train.Len())
	for _, e := range result.Timeline.Evaluations {
		if math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0) {
			one.Diverged = fmt.Sprintf("the evaluation behind step %d gave %v", e.Step+1, e.Loss)
			break
		}
		one.Points = append(one.Points, curves.Point{Epoch: float64((e.Step+1)*t.plan.StepSamples()) / rows, Loss: e.Loss, Accuracy: e.Accuracy()})
	}
	if one.Points == nil {
		one.Points = []curves.Point{}
	}
	end := "diverged at once"
	if n := len(one.Points); n > 0 {
		end = fmt.Sprintf("loss %.4f, accuracy %.2f %% after %.3g epochs", one.Points[n-1].Loss, 100*one.Points[n-1].Accuracy, one.Points[n-1].Epoch)
	}
	fmt.Fprintf(l.log, "  %s, seed %d: %s\n", t.method.Name, t.job.Seed, end)
	return file.Add(t.of, one)
}

// shuffled is the data in the order of a seed.
func (l *learning) shuffled(seed uint64) (*data.Set, error) {
	own := *l.Job
	own.Seed = seed
	set, err := prepare.OpenData(&own, l.Model)
	if err != nil {
		return nil, err
	}
	short := *set
	short.Train, err = data.Head(set.Train, l.set.Train.Len())
	return &short, cli.BadInput(err)
}
