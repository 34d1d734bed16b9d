// Package avgpipe registers the experiments of AvgPipe's tables and figures.
//
// In: an experiment's Options. Out: its Table. Refused: what the planners refuse.
package avgpipe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func init() {
	table.Register("avgpipe-fig19", "AvgPipe Figures 18 and 19: what each method to tune the degrees costs and gives",
		table.Uses{}, avgpipeFigure19)
}

// avgpipeTraining is one of AvgPipe's three trainings (section 7).
type avgpipeTraining struct {
	Name      string         `yaml:"name"`
	Cluster   string         `yaml:"cluster"`
	Batch     int            `yaml:"batch"`
	Pipelines int            `yaml:"pipelines"` // at most, what max-num finds memory for
	Optimizer string         `yaml:"optimizer"`
	Settings  map[string]any `yaml:"settings"`
}

// load is the training partitioned, on devices by roofline, and every size of micro-batch.
func (a avgpipeTraining) load(ctx context.Context) (w *avgpipe.Workload, sizes []int, err error) {
	c, err := cluster.Preset(a.Cluster)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.Build(a.Name, a.Settings)
	if err != nil {
		return nil, nil, err
	}
	states := 0
	if a.Optimizer == "adam" {
		states = 2
	}
	sizes = plan.Divisors(a.Batch)
	p, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: sizes, Optimizer: a.Optimizer, States: states,
		Recurrent: true})
	if err != nil {
		return nil, nil, err
	}
	w = &avgpipe.Workload{Profile: p, Cluster: c, Batch: a.Batch, LimitBytes: c.MemoryBytes(0)}
	w.Base, err = avgpipe.Partition(ctx, w, tune.Overrides{})
	return w, sizes, err
}

// avgpipeNote says how the trainings are modelled.
const avgpipeNote = "on 3 x 2 V100 over 1 Gbps (AWD: 2 x 2), layers by roofline; BERT is its large model at 128 " +
	"positions, AWD its 3 layers of 1150 units; stages by PipeDream's partitioner"

// avgpipeWorkload is a training and what section 7.3 says of tuning it.
type avgpipeWorkload struct {
	Training         avgpipeTraining `yaml:",inline"`
	TraversalMinutes float64         `yaml:"traversal_minutes"`
	ProfilingMinutes float64         `yaml:"profiling_minutes"` // at most
	MaxNum           float64         `yaml:"max_num"`           // over the shortest training; 0 is not printed
	MaxSize          float64         `yaml:"max_size"`
	MaxSizePipelines int             `yaml:"max_size_pipelines"`
}

// avgpipeTuned is every method's choice of the degrees of the three workloads, the simulator
// standing for the machine.
func avgpipeTuned(ctx context.Context, t *table.Table, yield func(avgpipeWorkload, *avgpipe.Result) error) error {
	err := avgpipeLoads(ctx, t, "fig19", func(w avgpipeWorkload, load *avgpipe.Workload, sizes []int) error {
		found, err := avgpipe.Tune(ctx, avgpipe.Request{Workload: load, Sizes: sizes, Pipelines: w.Training.Pipelines,
			Machine: load.Simulated(), Rivals: true})
		if err != nil {
			return err
		}
		return yield(w, found)
	})
	t.Notes = append(t.Notes,
		"the simulator is the machine: 20 batches are profiled, 10 of every setting traversed; 8 pipelines at most for "+
			"GNMT, 4 for the others, which is what the text has max-num find memory for",
		"a training is taken to need as many batches whatever the degrees, so that its time goes as a batch's")
	return err
}

// avgpipeLoads reads the trainings of a table, and loads them one after the other.
func avgpipeLoads[W interface{ training() avgpipeTraining }](ctx context.Context, t *table.Table, name string,
	yield func(w W, load *avgpipe.Workload, sizes []int) error) error {
	var paper struct {
		Source    string `yaml:"source"`
		Workloads []W    `yaml:"workloads"`
	}
	if err := table.Read(files, name, &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	t.Notes = append(t.Notes, avgpipeNote)
	for _, w := range paper.Workloads {
		load, sizes, err := w.training().load(ctx)
		if err != nil {
			return err
		}
		if err := yield(w, load, sizes); err != nil {
			return err
		}
	}
	return nil
}

func (w avgpipeWorkload) training() avgpipeTraining { return w.Training }

// choiceOf is a method's choice; it is there, fit and measured, or the experiment is wrong.
func choiceOf(found *avgpipe.Result, m avgpipe.Method) (avgpipe.Choice, error) {
	for _, c := range found.Choices {
		if c.Method == m && c.Refused == "" && c.Measured != nil {
			return c, nil
		}
	}
	return avgpipe.Choice{}, errors.New(string(m) + " chose nothing")
}

func avgpipeFigure19(ctx context.Context, _ table.Options, t *table.Table) error {
	return avgpipeTuned(ctx, t, func(w avgpipeWorkload, found *avgpipe.Result) error {
		best, err := choiceOf(found, avgpipe.ByTraversal)
		if err != nil {
			return err
		}
		profiling, err := choiceOf(found, avgpipe.ByPrinted)
		if err != nil {
			return err
		}
		t.Number(fmt.Sprintf("%s, time tuning by traversal (%d settings) over profiling", w.Training.Name, best.Tried),
			w.TraversalMinutes/w.ProfilingMinutes,
			best.TuningS/profiling.TuningS, "%.0fx", "the paper's is a bound, of minutes with starting up; its grid is not "+
				"printed")
		for _, by := range []avgpipe.Method{avgpipe.ByTraversal, avgpipe.ByPrinted, avgpipe.ByAdjusted, avgpipe.BySimulator} {
			c, err := choiceOf(found, by)
			if err != nil {
				return err
			}
			paper, why := 0.0, ""
			switch by {
			case avgpipe.ByTraversal:
				paper = 1
			case avgpipe.ByPrinted:
				why = "the paper: nearly the shortest"
			case avgpipe.BySimulator:
				why = "the simulator is the machine"
			}
			t.Number(fmt.Sprintf("%s, training by %s: %s", w.Training.Name, by, c.At), paper,
				c.Measured.StepS/best.Measured.StepS, "%.2fx", why)
		}
		for _, by := range []struct {
			method avgpipe.Method
			at     avgpipe.Degrees
			paper  float64
			why    string
		}{
			{avgpipe.ByMaxNum, avgpipe.Degrees{MicroBatches: w.Training.Batch, Pipelines: w.Training.Pipelines}, w.MaxNum,
				"a roofline has no cost for each kernel, and small products are as efficient as large ones"},
			{avgpipe.ByMaxSize, avgpipe.Degrees{MicroBatches: 1, Pipelines: w.MaxSizePipelines}, w.MaxSize,
				"the paper: 2 to 3.0x for GNMT and BERT"},
		} {
			i := slices.IndexFunc(found.Grid, func(c avgpipe.Cell) bool { return c.At == by.at })
			if i < 0 {
				return fmt.Errorf("%s of %s is not in the grid", by.at, w.Training.Name)
			}
			t.Number(fmt.Sprintf("%s, training by %s as the paper has it: %s", w.Training.Name, by.method, by.at), by.paper,
				found.Grid[i].Measured.StepS/best.Measured.StepS, "%.2fx", by.why)
		}
		return nil
	})
}
