package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/bench"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune"
)

func trainCommand() *cobra.Command {
	var flags jobFlags
	var asJSON, dry bool
	c := &cobra.Command{
		Use: "train [JOB.yaml]", Short: "Profile, plan, check, simulate, train and report", Long: trainHelp,
		Example: `  millrace train --model gpt --data FILE.txt --workers 2 --batch 32 --steps 200 --out runs/gpt
  millrace train --model convnet --data fashion-mnist --batch 128 --steps 500 --eval-every 100
  millrace train job.yaml --resume runs/gpt/checkpoints`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				flags.file = args[0]
			}
			j, err := flags.job()
			if err != nil {
				return err
			}
			return train(c, j, asJSON, dry)
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.TrainOptions)
	c.Flags().BoolVar(&asJSON, "json", false, "print the result for machines")
	c.Flags().BoolVar(&dry, "dry-run", false, "stop before the first step")
	return c
}

// outcome is what train prints with --json.
type outcome struct {
	Out         string             `json:"out"`
	Steps       int                `json:"steps"`
	Loss        float64            `json:"loss"`
	Evaluations []trace.Evaluation `json:"evaluations,omitempty"`
	Checkpoint  string             `json:"checkpoint,omitempty"`
	Predicted   float64            `json:"predicted_step_s"`
	Measured    float64            `json:"measured_step_s"`
	Report      string             `json:"report"`
	Stopped     bool               `json:"stopped"`
}

func train(c *cobra.Command, j *job.Job, asJSON, dry bool) error {
	if j.Cluster != "" {
		return badInput(fmt.Errorf("cluster %s: training runs on this machine; plan for others with: millrace plan --cluster", j.Cluster))
	}
	if j.Out == "" {
		j.Out = filepath.Join("runs", trimmed(j.Model))
	}
	m, err := loadModel(j)
	if err != nil {
		return err
	}
	set, err := openData(j, m)
	if err != nil {
		return err
	}
	engine, err := openEngine()
	if err != nil {
		return err
	}
	done, err := resume(j)
	if err != nil {
		return err
	}
	if !dry {
		if err := checkOut(j); err != nil {
			return err
		}
	}
	metrics, err := listenForMetrics(j)
	if err != nil {
		return err
	}
	if metrics != nil {
		defer metrics.Close()
	}
	p, err := prepare(c, j)
	if err != nil {
		return err
	}
	config := run.Config{
		Model: m, Plan: p.plan, Engine: engine, Data: run.Data{Train: data.Prefetch(set.Train, 4), Test: set.Test},
		Optimizer: j.Optimizer, Rate: j.Rate, Clip: j.Clip, Seed: j.Seed, Steps: j.Steps, PerSlice: j.BatchNorm == job.PerSlice, Mesh: meshOf(j, p.cluster),
		ThreadsPerWorker: j.ThreadsPerWorker, Cores: tune.Cores(p.cluster, p.plan), Bind: run.Binding(j.Bind),
		EvalEvery: j.EvalEvery, EvalRows: j.EvalRows, Resume: j.Resume, AverageResumed: j.ResumeAveraged,
		Checkpoint: run.Checkpointing{Dir: filepath.Join(j.Out, "checkpoints"), Every: j.SaveEvery, Keep: j.Keep},
	}
	config.Rate = config.Rate.Scaled(j.RateFactor(p.plan.Together()))
	if j.Advance == job.AutoAdvance {
		config.Next = p.advancing(c.ErrOrStderr()).Next
	}
	if err := config.Check(); err != nil {
		return badInput(err)
	}
	if !asJSON {
		explain(c.OutOrStdout(), p)
	}
	simulated, err := checkAndSimulate(p)
	if err != nil {
		return err
	}
	if dry {
		return nil
	}
	if err := finishesItsStep(c); err != nil {
		return err
	}
	folder, err := takeFolder(j.Out)
	if err != nil {
		return faultOf(err, "")
	}
	defer folder.Close() // behind the report
	runFolder.Store(&j.Out)
	w, err := openRun(p, simulated, done, metrics)
	if err != nil {
		return faultOf(err, "")
	}
	config.Hooks = w.hooks()
	result, err := run.Train(c.Context(), config)
	if result == nil {
		return faultOf(errors.Join(err, w.close()), "")
	}
	report, reportErr := w.finish(result, simulated, c.OutOrStdout(), asJSON)
	if err = errors.Join(err, reportErr); err != nil {
		return faultOf(err, cmp.Or(result.Checkpoint, j.Resume))
	}
	if asJSON {
		out := outcome{Out: j.Out, Steps: result.Steps, Loss: result.Loss, Evaluations: result.Timeline.Evaluations,
			Checkpoint: result.Checkpoint, Predicted: p.plan.Predicted.StepS, Measured: result.Timeline.StepTime(min(10, len(result.Timeline.Steps)/10)), Report: report, Stopped: result.Stopped}
		if err := writeJSON(c.OutOrStdout(), out); err != nil {
			return err
		}
	}
	if result.Stopped {
		return context.Cause(c.Context())
	}
	return nil
}

// resume is how many steps the checkpoint has behind it that a job goes on from, 0 without one. The job
// keeps its micro-batch, unless it asks for another: which sums are formed depends on it, and with
// the same ones every bit is as if the run had not stopped, under any plan.
func resume(j *job.Job) (int, error) {
	if j.Resume == "" {
		return 0, nil
	}
	from, err := checkpoint.Open(j.Resume)
	if err != nil {
		return 0, badInput(err)
	}
	if j.MicroBatch == 0 && j.MicroBatches == 0 && j.Batch == from.Manifest.Batch {
		j.MicroBatch = from.Manifest.MicroBatch
	}
	return from.Manifest.Steps, from.Close()
}

func trimmed(name string) string {
	base := filepath.Base(name)
	return base[:len(base)-len(filepath.Ext(base))]
}

// openEngine opens libtorch. That it is missing is for the user to mend, like any input.
func openEngine() (*torch.Engine, error) {
	e, err := torch.Open()
	return e, badInput(err)
}

// textEvalRows is how many windows of a text an evaluation takes unless the job says: all of
// a few megabytes' tenth would take longer than the training between two evaluations.
const textEvalRows = 256

// openData opens the job's data and sees that the model can read it.
func openData(j *job.Job, m *model.Model) (*data.Set, error) {
	if j.Data == "" {
		return nil, badInput(fmt.Errorf("no data is named; give --data digits, fashion-mnist, a folder of IDX files, a .csv file or a text"))
	}
	var input model.Tensor
	for _, in := range m.Inputs {
		if in.Name == "input" {
			input = in
		}
	}
	o := data.Options{Seed: j.Seed}
	if input.DType == model.Int {
		if len(input.Shape) == 1 {
			o.Context = input.Shape[0]
		}
	} else {
		o.InputShape = input.Shape
	}
	set, err := data.Open(j.Data, o)
	if err != nil {
		return nil, badInput(err)
	}
	if set.Tokens != (input.DType == model.Int) {
		return nil, badInput(fmt.Errorf("model %s reads %s inputs, and %s has others; gpt and lstm need a text, mlp and convnet images or tables", m.Name, input.DType, j.Data))
	}
	if j.EvalRows == job.Auto {
		j.EvalRows = 0
		if set.Tokens {
			j.EvalRows = textEvalRows
		}
	}
	last := m.Layers[len(m.Layers)-1]
	if at := m.Index(last.From[0]); at >= 0 {
		shape := m.Layers[at].Outputs[0].Shape
		if classes := shape[len(shape)-1]; classes < set.Classes {
			return nil, badInput(fmt.Errorf("model %s tells %d classes apart, %s has %d", m.Name, classes, j.Data, set.Classes))
		}
	}
	return set, nil
}

// checkAndSimulate proves the plan's Program and writes down what the simulator says of it.
func checkAndSimulate(p *planned) (*trace.Timeline, error) {
	costs, err := sim.CostsOf(p.profile, p.cluster, p.plan)
	if err != nil {
		return nil, err
	}
	program, err := tune.Program(p.profile, p.plan, p.job.Clip > 0, tune.Steps(costs))
	if err != nil {
		return nil, badInput(err)
	}
	if _, err := schedule.Check(program); err != nil {
		return nil, err
	}
	t, _, err := sim.Run(program, costs, sim.Options{Cores: tune.Cores(p.cluster, p.plan), Record: true, Jitter: true})
	if err != nil {
		return nil, err
	}
	t.Model, t.ThreadsPerWorker = p.model.Name, p.job.ThreadsPerWorker
	return t, nil
}

// medianOf is the median of times, 0 of none.
func medianOf(took []float64) float64 {
	if len(took) == 0 {
		return 0
	}
	return bench.Median(took)
}

// clean removes what an earlier run left: its checkpoints only once the user has said so.
func clean(out string) error {
	for _, name := range []string{"checkpoints", "metrics.jsonl"} {
		if err := os.RemoveAll(filepath.Join(out, name)); err != nil {
			return err
		}
	}
	old, err := filepath.Glob(filepath.Join(out, "events.out.tfevents.*"))
	for _, f := range old {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}
