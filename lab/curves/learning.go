package curves

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// Alone returns a plan for the whole model on one worker. It needs no profile, so any micro-batch size is possible.
func Alone(m *model.Model, microBatch, batch int) *plan.Plan {
	return &plan.Plan{
		Version: plan.Version, Model: m.Name, ModelID: m.ID(), Cluster: "local", Replication: "round_robin",
		Stages:     []plan.Stage{{LastLayer: len(m.Layers) - 1, Devices: []int{0}, Warmup: 1}},
		MicroBatch: microBatch, MicroBatches: batch / microBatch, Schedule: "dp", Weights: "sync", Planner: "given",
	}
}

// learnedFrom is everything, except the code, that the result of a training depends on. If an earlier training has the
// same values, its result is reused.
type learnedFrom struct {
	Model     string         `json:"model"`
	Data      string         `json:"data"`
	Rows      int            `json:"rows"` // rows of an epoch
	EvalRows  int            `json:"eval_rows"`
	Epochs    float64        `json:"epochs"`
	EvalEvery int            `json:"eval_every"` // steps between two evaluations
	Seed      uint64         `json:"seed"`
	Weights   string         `json:"weights"`
	Schedule  string         `json:"schedule"`
	Stages    []int          `json:"stages"` // first layer of each stage
	Batch     int            `json:"batch"`
	Micros    int            `json:"micro_batches"`
	Elastic   *plan.Elastic  `json:"elastic,omitempty"`
	Optimizer optim.Settings `json:"optimizer"`
	Rate      optim.Rate     `json:"rate"`
	Clip      float64        `json:"clip,omitempty"`
}

// Task is one training of one method. The caller runs it.
type Task struct {
	Method    Method
	Job       job.Job
	Plan      *plan.Plan
	Steps     int
	EvalEvery int // steps between two evaluations

	of   learnedFrom
	rows int // rows of an epoch
}

// Training returns the task's evaluations in the order of steps. `diverged` says why the training ended early; "" means
// that it did not.
func (t *Task) Training(evaluations []trace.Evaluation, diverged string) Training {
	one := Training{Method: t.Method.Name, Seed: t.Job.Data.Seed, Diverged: diverged, Points: []Point{}}
	for _, e := range evaluations {
		if math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0) {
			one.Diverged = fmt.Sprintf("the evaluation behind step %d gave %v", trace.StepNumber(e.Step), e.Loss)
			break
		}
		one.Points = append(one.Points, Point{
			Epoch: float64(trace.StepNumber(e.Step)*t.Plan.StepSamples()) / float64(t.rows),
			Loss:  e.Loss, Accuracy: e.Accuracy()})
	}
	return one
}

// Tasks returns all trainings, seed by seed, so that early results compare all methods. It refuses an invalid
// learning rate.
func (s *Setting) Tasks() ([]Task, error) {
	var out []Task
	for seed := range s.Seeds {
		for _, m := range s.Methods {
			t := s.task(m, s.Job.Data.Seed+uint64(seed))
			if err := t.Job.Train.Rate.Check(); err != nil {
				return nil, fmt.Errorf("%s: %w", m.Name, err)
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func (s *Setting) task(m Method, seed uint64) Task {
	own := m.Job(s.Job, seed)
	micros := 1 // the number of micro-batches changes only rounding, and one micro-batch is fastest
	if s.Model.NormalisesMicroBatches() != nil {
		micros = s.Micros
		if m.Split { // micro-batches as large as in other methods, if possible
			micros = max(1, micros/m.Pipelines())
			for own.Plan.Batch%micros != 0 {
				micros--
			}
		}
	}
	pl := m.Plan(s.Base, own.Plan.Batch, micros)
	if m.Policy == schedule.Sync || m.Policy == schedule.Elastic {
		// The training runs on one worker, which is cheaper and computes the same bits as every split into stages.
		one := Alone(s.Model, pl.MicroBatch, own.Plan.Batch)
		if pl.Elastic != nil {
			one.Schedule, one.Weights, one.Elastic, one.Stages[0].Warmup = pl.Schedule, pl.Weights, pl.Elastic, 0
		}
		pl = one
	}
	rows, samples := float64(s.Rows), float64(pl.StepSamples())
	every := max(1, int(math.Round(rows/float64(s.Evals)/samples)))
	steps := max(1, int(math.Ceil(s.Epochs*rows/samples/float64(every)))) * every
	own.Train.Rate.Total = steps
	return Task{Method: m, Job: own, Plan: pl, Steps: steps, EvalEvery: every, rows: s.Rows, of: learnedFrom{
		Model: s.Model.ID(), Data: own.Data.Source, Rows: s.Rows, EvalRows: own.Train.EvalRows, Epochs: s.Epochs,
		EvalEvery: every, Seed: seed, Weights: pl.Weights, Schedule: pl.Schedule, Stages: FirstLayers(pl),
		Batch: own.Plan.Batch, Micros: pl.MicroBatches, Elastic: pl.Elastic, Optimizer: own.Train.Optimizer,
		Rate: own.Train.Rate, Clip: own.Train.Clip,
	}}
}

// Learn runs the tasks that are missing from the file, several at a time. It returns all trainings by method, in the
// order of seeds. It stops at the first error.
func (s *Setting) Learn(ctx context.Context, file *Trainings, atOnce int, log io.Writer,
	train func(context.Context, Task) (Training, error)) (map[string][]Training, error) {
	tasks, err := s.Tasks()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan Task)
	var wait sync.WaitGroup
	var saying sync.Mutex
	for range atOnce {
		wait.Go(crash.Caught(func() {
			for t := range todo {
				if ctx.Err() != nil {
					continue
				}
				one, err := train(ctx, t)
				if err == nil {
					saying.Lock()
					fmt.Fprintf(log, "  %s, seed %d: %s\n", one.Method, one.Seed, one.end())
					saying.Unlock()
					err = file.Add(t.of, one)
				}
				if err != nil {
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
	fmt.Fprintf(log, "  %d trainings, %d of them from the file\n", len(tasks), len(tasks)-missing)
	return s.Found(file)
}

// end says how far a training got.
func (t *Training) end() string {
	n := len(t.Points)
	if n == 0 {
		return "diverged at once"
	}
	last := t.Points[n-1]
	return fmt.Sprintf("loss %.4f, accuracy %.2f %% after %.3g epochs", last.Loss, 100*last.Accuracy, last.Epoch)
}

// Found returns the trainings that a file holds, by method.
func (s *Setting) Found(file *Trainings) (map[string][]Training, error) {
	tasks, err := s.Tasks()
	if err != nil {
		return nil, err
	}
	out := map[string][]Training{}
	for _, t := range tasks {
		one, ok, err := file.Find(t.of)
		if err != nil {
			return nil, err
		}
		if ok {
			out[t.Method.Name] = append(out[t.Method.Name], one)
		}
	}
	return out, nil
}
