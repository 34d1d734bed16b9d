package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
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
			var from *resumption
			var folder *os.File
			defer func() { folder.Close() }()
			flags.given = append(flags.given, func(j *job.Job) (err error) {
				if nameOut(j); !dry { // before its checkpoints are looked at, which a run there adds to
					folder, err = holdFolder(j.Out)
				}
				if err == nil {
					from, err = takeUp(j)
				}
				return err
			})
			j, err := flags.job()
			if err != nil {
				return remedied(err)
			}
			return train(c, j, from, folder, asJSON, dry)
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
	// Taken and Changed are settings of the checkpoint that the run went on from.
	Taken   []string `json:"taken,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// train does a job. folder is that of the job, where it was there and is held.
func train(c *cobra.Command, j *job.Job, from *resumption, folder *os.File, asJSON, dry bool) error {
	if j.Cluster != "" {
		return badInput(fmt.Errorf("cluster %s: training runs on this machine; plan for others with: millrace plan --cluster", j.Cluster))
	}
	m, err := loadModel(j)
	if err != nil {
		return err
	}
	if err := from.fits(m); err != nil {
		return badInput(err)
	}
	set, err := openData(j, m)
	if err != nil {
		return err
	}
	engine, err := openEngine()
	if err != nil {
		return err
	}
	if !dry {
		if err := checkOut(j, from); err != nil {
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
	if !asJSON {
		fmt.Fprint(c.OutOrStdout(), from.explain(j))
	}
	p, err := prepare(c, j, true)
	if err != nil {
		return err
	}
	if text := from.planned(j, p.plan); !asJSON {
		fmt.Fprint(c.OutOrStdout(), text)
	}
	config := run.Config{
		Model: m, Plan: p.plan, Engine: engine, Data: run.Data{Train: data.Prefetch(set.Train, 4), Test: set.Test},
		Optimizer: j.Optimizer, RateScale: j.RateScale, Clip: j.Clip, Seed: j.Seed, Steps: j.Steps,
		PerSlice: j.BatchNorm == job.PerSlice, AnyOrder: j.AnyOrder, Mesh: meshOf(j, p.cluster),
		ThreadsPerWorker: j.ThreadsPerWorker, Cores: predict.Cores(p.cluster, p.plan), Place: &place.Policy{Bind: place.Binding(j.Bind)},
		EvalEvery: j.EvalEvery, EvalRows: j.EvalRows, Resume: from.at(), AverageResumed: j.ResumeAveraged,
		Checkpoint: run.Checkpointing{Dir: checkpoints(j), Every: j.SaveEvery, Keep: j.Keep},
	}
	config.Rate, config.RateFactor = from.rate(j, p.plan.Together())
	if j.Advance == job.AutoAdvance {
		config.Next = p.advancing(c.ErrOrStderr()).Next
		if _, err := p.advancing(io.Discard).Next(trace.Timeline{}, 1); err != nil { // before anything is written
			return badInput(fmt.Errorf("--advance %s: %w", j.Advance, err))
		}
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
	if folder == nil {
		if folder, err = takeFolder(j.Out); err != nil {
			return faultOf(err, "")
		}
		defer folder.Close() // behind the report
	}
	runFolder.Store(&j.Out)
	w, err := newRun(p, simulated, from, metrics)
	if err != nil {
		return err
	}
	config.Hooks, config.Begin = w.hooks(), w.begin
	result, err := run.Train(c.Context(), config)
	if !w.begun {
		return faultOf(w.unreplaced(errors.Join(err, w.close())), from.at())
	}
	in, writing := w.finish(result)
	if !isFull(err) { // of a full disk every file says so
		err = errors.Join(err, writing)
	}
	if err != nil {
		return faultOf(w.unreplaced(err), cmp.Or(result.Checkpoint, from.at()))
	}
	if asJSON {
		err = writeJSON(c.OutOrStdout(), w.outcome(in.Measured, result))
	} else {
		err = w.print(c.OutOrStdout(), in, result)
	}
	if result.Stopped {
		return context.Cause(c.Context())
	}
	return err
}

// outcome is what is printed for machines.
func (w *runDir) outcome(t *trace.Timeline, r *run.Result) outcome {
	o := outcome{
		Out: w.job.Out, Steps: r.Steps, Loss: r.Loss, Evaluations: t.Evaluations, Checkpoint: r.Checkpoint,
		Predicted: w.plan.Predicted.StepS, Measured: t.StepTime(min(10, len(t.Steps)/10)),
		Report: w.page(), Stopped: r.Stopped,
	}
	if w.from != nil {
		o.Taken, o.Changed = w.from.taken, w.from.changed
	}
	return o
}

// unreplaced says of a run that has failed without a checkpoint where the one is that it was to replace.
func (w *runDir) unreplaced(err error) error {
	if w.replaced == "" {
		return err
	}
	return fmt.Errorf("%w; what was in %s before is in %s", err, w.job.Out, w.replaced)
}

func trimmed(name string) string {
	base := filepath.Base(name)
	return base[:len(base)-len(filepath.Ext(base))]
}

// openEngine opens libtorch. That it is missing is for the user to mend, like any input.
func openEngine() (*torch.Engine, error) {
	if err := loadWithoutThreads(); err != nil {
		return nil, err
	}
	e, err := torch.Open()
	if err != nil {
		return nil, badInput(err)
	}
	return e, checkSpace()
}

// textEvalRows is how many windows of a text an evaluation takes unless the job says: all of
// a few megabytes' tenth would take longer than the training between two evaluations.
const textEvalRows = 256

// openData opens the job's data and sees that the model can read it.
func openData(j *job.Job, m *model.Model) (*data.Set, error) {
	if j.Data == "" {
		return nil, badInput(fmt.Errorf("no data is named; give --data digits, fashion-mnist, a folder of IDX files, a .csv file or a text"))
	}
	if err := checkRunnable(m); err != nil {
		return nil, err
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
	program, err := predict.Program(p.profile, p.plan, p.job.Clip > 0, predict.Steps(costs))
	if err != nil {
		return nil, badInput(err)
	}
	if _, err := check.Check(program); err != nil {
		return nil, err
	}
	t, _, err := sim.Run(program, costs, sim.Options{Cores: predict.Cores(p.cluster, p.plan), Record: true, Jitter: true})
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
	return stats.Median(took)
}
