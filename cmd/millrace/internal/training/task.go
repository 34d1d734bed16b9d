package training

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
)

// needs is what each process opens for a job.
type needs struct {
	model  *model.Model
	engine *torch.Engine
	data   *data.Set
	mark   data.Mark // of the training data
}

// open opens what a job needs. `from` is the checkpoint that the job resumes from.
func open(j *job.Job, from *resumption) (*needs, error) {
	m, err := prepare.LoadModel(j)
	if err != nil {
		return nil, err
	}
	if err := from.fits(m); err != nil {
		return nil, cli.BadInput(err)
	}
	set, err := prepare.OpenData(j, m)
	if err != nil {
		return nil, err
	}
	mark, err := data.MarkOf(set.Train)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	engine, err := prepare.OpenEngine()
	return &needs{m, engine, set, mark}, err
}

// task is what rank 0 sends to every process of a run.
type task struct {
	Job        string             `json:"job,omitempty"` // for processes other than rank 0
	Plan       *plan.Plan         `json:"plan"`
	Rate       optim.Rate         `json:"rate"`
	RateFactor float64            `json:"rate_factor"`
	Resume     string             `json:"resume,omitempty"`
	Workers    []process.Location `json:"workers,omitempty"`
	Seats      []hosts.Seat       `json:"seats,omitempty"` // by process
	Streams    int                `json:"streams"`         // connections between two workers, each way
}

// task returns the task for a job and its plan.
func (t *training) task(p *prepare.Prepared) (*task, error) {
	k := &task{Plan: p.Plan, Resume: t.from.at(), Streams: t.peers.streams}
	k.Rate, k.RateFactor = t.from.rate(p.Job, p.Plan.Together())
	return k, t.placed(k, p)
}

// config returns the configuration of a process's run.
func (k *task) config(j *job.Job, n *needs) run.Config {
	return run.Config{
		Model: n.model, Plan: k.Plan, Engine: n.engine,
		Data: run.Data{Train: data.Prefetch(n.data.Train, 4), Test: n.data.Test, Mark: n.mark},
		Train: run.Training{Optimizer: j.Train.Optimizer, Rate: k.Rate, RateScale: j.Train.RateScale,
			RateFactor: k.RateFactor, Clip: j.Train.Clip, Seed: j.Data.Seed, Steps: j.Train.Steps,
			PerSlice: j.Plan.BatchNorm == job.PerSlice, AnyOrder: j.Plan.AnyOrder,
			EvalEvery: j.Train.EvalEvery, EvalRows: j.Train.EvalRows},
		Machine: run.Machine{ThreadsPerWorker: j.Machine.ThreadsPerWorker,
			Place: &place.Policy{Bind: place.Binding(j.Machine.Bind)}},
		Checkpoint: run.Checkpointing{Dir: checkpoints(j), Every: j.Save.Every, Keep: j.Save.Keep,
			ByStage: j.Save.Mode == job.SaveStage},
		Keep:   run.Keeping{Moments: momentsOf(k.Plan)},
		Resume: run.Resuming{At: k.Resume, Averaged: j.Save.ResumeAveraged},
		Hooks:  run.Hooks{OnPart: cli.AtStep}, Class: cli.ClassOf,
	}
}

// mostMoments limits at how many moments of a run steps are recorded for the report. mostRecorded limits the number of
// events of these steps. A step has about 6 events for each micro-batch on each stage.
const mostMoments, mostRecorded = 4, 1 << 14

// momentsOf returns the number of moments at which steps of a plan are recorded. At each moment a step is recorded, and
// the steps before and after it.
func momentsOf(pl *plan.Plan) int {
	events := 3 * 6 * pl.MicroBatches * len(pl.Stages) * pl.Together()
	return min(mostMoments, mostRecorded/max(1, events))
}

// watched returns how long each worker should compute in a step. It is 0 if processes share too few cores, because a
// slow worker is then not a straggler.
func (k *task) watched(profileS []float64) []float64 {
	watched := slices.Clone(profileS)
	for worker := range watched {
		if k.Seats[k.Workers[worker].Process].Starved {
			watched[worker] = 0
		}
	}
	return watched
}

// replayed returns the order of updates in the run that a job replays. The order is empty if the job replays none.
func replayed(j *job.Job) (order folder.Order, err error) {
	if j.Train.Replay == "" {
		return order, nil
	}
	r, err := folder.ReadParts(j.Train.Replay)
	if err == nil {
		order, err = r.Order()
	}
	if err != nil {
		return order, fmt.Errorf("%s: %w", j.Called("replay"), err)
	}
	return order, repeats(j, r.Shown().Plan)
}

// stays refuses settings that cannot be changed when a training is resumed, before anything is measured.
func (r *resumption) stays(j *job.Job) error {
	m := r.manifest
	if m.Steps > j.Train.Steps {
		return fmt.Errorf("checkpoint %s: %s are done, and %s is %d in all; give %d or more, or an earlier checkpoint",
			r.path, terminal.Count(m.Steps, "step"), j.Called("steps"), j.Train.Steps, m.Steps)
	}
	for _, own := range []struct {
		key        string
		was, asked any
		why        string
	}{
		{"batch", m.Batch, cmp.Or(j.Plan.Batch, m.Batch), "its place in the data is counted in such batches"},
		{"seed", m.Seed, j.Data.Seed, "the order of its data follows from it"},
		{"optimizer", m.Optimizer.Kind, cmp.Or(j.Train.Optimizer.Kind, m.Optimizer.Kind), "it holds that optimizer's state"},
	} {
		if own.was != own.asked && !(own.key == "batch" && j.Given("plan")) {
			return fmt.Errorf("checkpoint %s: its %s is %v, and %s; leave out %s %v, or begin another training with its "+
				"weights: checkpoint export, then --init", r.path, own.key, own.was, own.why, own.key, own.asked)
		}
	}
	return nil
}

// inheritBoundary takes over the tensor format between stages, if there may be several stages.
func (r *resumption) inheritBoundary(j *job.Job, pl *plan.Plan) {
	order, err := family.Lookup(j.Plan.Schedule) // fails if the search chooses the schedule
	if pl.Boundary.Packs() && j.Plan.Stages != 1 && (err != nil || !order.Undivided) {
		take(r, j, "boundary", &j.Plan.Boundary, string(pl.Boundary))
	}
}

// repeats sets a job's tensor format between stages to that of the run it replays. Another format would change the bits
// of the result. It refuses a job that sets another format.
func repeats(j *job.Job, was *plan.Plan) error {
	if was == nil {
		return nil
	}
	own, err := packing.Named(j.Plan.Boundary)
	if err != nil {
		return err
	}
	if j.Given("boundary") && own != was.Boundary {
		return fmt.Errorf("%s is %s; the run in %s, which %s repeats, has %s: leave it out", j.Called("boundary"), own,
			j.Train.Replay, j.Called("replay"), was.Boundary)
	}
	j.Plan.Boundary = string(was.Boundary)
	return nil
}

// undertaking is a run that is planned and checked, and has not written anything yet.
type undertaking struct {
	job    *job.Job
	p      *prepare.Prepared
	task   *task
	config run.Config
}

// planned plans a job, and agrees with the other processes on the run.
func (t *training) planned(j *job.Job, needs *needs) (*undertaking, error) {
	order, err := replayed(j)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	p, err := t.prepare(j)
	if err != nil {
		return nil, err
	}
	if t.peers.unlike != "" {
		p.Plan.Why = append(p.Plan.Why, t.peers.unlike)
	}
	t.say(t.from.replanned(t.changedFlags(), p.Plan, p.Model) + t.from.planned(j, p.Plan))
	task, err := t.task(p)
	if err != nil {
		return nil, err
	}
	config := task.config(j, needs)
	if err := t.spread.opens(&config); err != nil {
		return nil, err
	}
	if err := t.meets(&config, j, needs); err != nil {
		return nil, err
	}
	if j.Machine.Collectives == job.Native {
		p.Plan.Why = append(p.Plan.Why, otherBits(p.Plan))
	}
	config.Wire.Carriers, config.Machine.Cores = prepare.CarriersOf(j, p.Cluster), predict.Cores(p.Cluster, p.Plan, 0)
	if j.Plan.Advances() {
		config.Next = p.Advancing(t.ErrOrStderr()).Next
		if _, err := p.Advancing(io.Discard).Next(trace.Timeline{}, 1); err != nil { // fail here, before files are written
			return nil, cli.BadInput(fmt.Errorf("--advance %s: %w", j.Plan.Advance, err))
		}
	}
	config.Train.Replay, config.Train.ReplaySeen = order.Applied, order.Seen
	if err := config.Check(); err != nil {
		return nil, prepare.RowsNamed(j, err)
	}
	return &undertaking{job: j, p: p, task: task, config: config}, nil
}
