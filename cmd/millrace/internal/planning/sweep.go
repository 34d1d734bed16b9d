package planning

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/shape"
)

// sweepFlags are the flags for plans of a fixed shape: replicas x stages x groups.
type sweepFlags struct {
	on       bool
	replicas []int
	chunks   []int
	svg      string // file for the drawing
}

func (f *sweepFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.svg, "svg", "", "with --sweep: draw step time over memory into this SVG file")
	cli.Writes(c, "svg")
	flags.BoolVar(&f.on, "sweep", false, "rank shapes on a described cluster: replicas x stages x tensor")
	flags.IntSliceVar(&f.replicas, "replicas", nil, "with --sweep: replicas of the pipeline (default: all that fit)")
	flags.IntSliceVar(&f.chunks, "chunks", nil, "with --sweep: virtual stages on each device")
}

// wanted reports whether any of the flags asks for shapes.
func (f *sweepFlags) wanted() bool {
	return f.on || len(f.replicas) > 0 || len(f.chunks) > 0 || f.svg != ""
}

// mostRanked limits how many shapes a sweep predicts besides the best one. It predicts at most mostRanked shapes that
// may fit, and half as many that do not fit.
const mostRanked = 200

// ofSearch lists flags that do not apply to shapes.
var ofSearch = []string{"micro-batches", "split", "weights", "pipelines", "planner", "time", "boundary", "profile"}

// Swept is what --json prints for a sweep.
type Swept struct {
	Shapes []*shape.Prediction `json:"shapes"`
	// Others is how many shapes were not predicted. None of them both fits and is faster than the first shape in
	// Shapes.
	Others        int                 `json:"others,omitempty"`
	Sensitivities []shape.Sensitivity `json:"sensitivities"`
}

// run ranks shapes and prints the result.
func (f *sweepFlags) run(c *cobra.Command, j *job.Job, explain, asJSON bool, output string) error {
	if !f.on {
		return cli.BadInput(errors.New("--replicas, --chunks and --svg are of shapes: give --sweep too"))
	}
	for _, name := range ofSearch {
		if c.Flags().Changed(name) {
			return cli.BadInput(fmt.Errorf("--%s is of the search over all plans, which shapes are not: leave out --%s or "+
				"--sweep", name, name))
		}
	}
	if j.Machine.Cluster == "" {
		return cli.BadInput(errors.New("--sweep predicts shapes on described devices: name them with --cluster"))
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return err
	}
	plain := *j
	plain.Machine.Tensor, plain.Machine.SequenceParallel = nil, false // each shape sets its own tensor parallelism
	described, err := prepare.DescribedCluster(c, &plain)
	if err != nil {
		return err
	}
	described = described.Limited(j.Machine.MemoryBytes())
	all, err := f.sweep(j)
	if err != nil {
		return cli.BadInput(err)
	}
	found, others, err := shape.Rank(m, described, mostRanked, all.Wide(m, described)...)
	if err != nil {
		return cli.BadInput(err)
	}
	best := found[0]
	if !best.Fits {
		return cli.BadInput(noneFits(described, found))
	}
	if best, err = shape.Explain(m, described, best.Shape); err != nil {
		return cli.BadInput(err)
	}
	found[0] = best
	sensitive, err := shape.Sensitivities(m, described, found, others)
	if err != nil {
		return cli.BadInput(err)
	}
	behind, beside := "", ""
	if output != "" {
		if behind, beside, err = written(j, m, described, found, output); err != nil {
			return err
		}
	}
	if f.svg != "" {
		text, err := plotted(m, described, found).SVG()
		if err == nil {
			err = document.WriteText(f.svg, string(text))
		}
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
	}
	if asJSON {
		if behind != "" {
			fmt.Fprintln(c.ErrOrStderr(), behind)
		}
		return cli.WriteJSON(c.OutOrStdout(), Swept{found, others.Count, sensitive})
	}
	out := c.OutOrStdout()
	if err := drawn(out, m, described, found, others.Count, sensitive, explain); err != nil {
		return err
	}
	if behind != "" {
		behind, output = terminal.Of(out).Wrap("", "  ", behind), ""
	}
	fmt.Fprint(out, behind)
	if err := cli.Wrote(out, output, f.svg); err != nil || beside == "" {
		return err
	}
	_, err = fmt.Fprint(out, terminal.Of(out).Wrap("", "  ", beside))
	return err
}

// noneFits returns the error of a ranking in which no shape fits the devices.
func noneFits(described *cluster.Cluster, found []*shape.Prediction) error {
	least := slices.MinFunc(found, func(a, b *shape.Prediction) int {
		return cmp.Compare(slices.Max(a.MemoryBytes), slices.Max(b.MemoryBytes))
	})
	return fmt.Errorf("%w, %s each; of the %d that were predicted %v holds least, %s", shape.ErrNothing,
		terminal.Bytes(described.MemoryBytes(0)), len(found), least.Shape, terminal.Bytes(slices.Max(least.MemoryBytes)))
}

// written writes the best shape that a plan can express, with its simulated prediction. A plan cannot express
// interleaved pipelines of several replicas. If the ranking has a better shape, the text `behind` says which shape was
// written and how much slower it is. The text `beside` compares the plan's prediction with the shape's.
func written(j *job.Job, m *model.Model, described *cluster.Cluster, found []*shape.Prediction,
	output string) (behind, beside string, _ error) {
	best := found[0]
	pl, why := best.Plan(m, described)
	for _, next := range found[1:] {
		if pl != nil || !next.Fits {
			break
		}
		if other, err := next.Plan(m, described); err == nil {
			pl, best = other, next
			behind = fmt.Sprintf("wrote %s: not the best shape, but %v, %.1f %% slower; %s", names.Shown(output),
				next.Shape, 100*(next.StepS/found[0].StepS-1), strings.TrimPrefix(why.Error(), "shape: "))
		}
	}
	if pl == nil {
		return "", "", cli.BadInput(why)
	}
	grouped, err := described.Grouped(best.Shape.Tensor, best.Shape.SequenceParallel)
	if err != nil {
		return "", "", cli.BadInput(err)
	}
	pl.Precision = j.Machine.Precision
	if gradients, err := plan.ParseGradients(j.Plan.Gradients); err == nil {
		pl.Gradients = gradients
	}
	p := &prepare.Prepared{Job: j, Model: m, Plan: pl}
	if err := p.CostsOn(grouped); err != nil {
		return "", "", err
	}
	p.Placed(pl)
	predicted, err := predict.Plan(p.Profile, grouped, pl, j.Train.Clip > 0)
	var work *predict.WorkError
	switch {
	case errors.As(err, &work):
		pl.Why = append(pl.Why, "not simulated: "+err.Error())
	case err != nil:
		return "", "", cli.BadInput(err)
	default:
		pl.Predicted = &predicted
		beside = shape.Beside(best, pl)
		pl.Why = append(pl.Why, beside)
	}
	return behind, beside, pl.Write(output)
}

// sweep returns the shapes to try. Settings that the user does not fix are left open.
func (f *sweepFlags) sweep(j *job.Job) (shape.Sweep, error) {
	gradients, err := plan.ParseGradients(j.Plan.Gradients)
	if err != nil {
		return shape.Sweep{}, fmt.Errorf("%s: %w", j.Called("gradients"), err)
	}
	base := shape.Shape{Batch: j.Plan.Batch, MicroBatch: 1, Precision: j.Machine.Precision,
		States: len(j.Train.Optimizer.States()), Behind: gradients == plan.GradientsBehind,
		SequenceParallel: j.Machine.SequenceParallel, Schedule: j.Plan.Schedule}
	w := shape.Sweep{Base: base, Tensors: j.Machine.Tensor, Replicas: f.replicas, Chunks: f.chunks}
	if j.Plan.Shard != "" {
		w.Shards = strings.Split(j.Plan.Shard, ",")
		for _, s := range w.Shards {
			if err := plan.Shard(s).Sums(gradients); err != nil {
				return shape.Sweep{}, fmt.Errorf("%s: it is %w", j.Called("gradients"), err)
			}
		}
	}
	if j.Plan.Stages > 0 {
		w.Stages = []int{j.Plan.Stages}
	}
	if j.Plan.MicroBatch > 0 {
		w.MicroBatches = []int{j.Plan.MicroBatch}
	}
	switch j.Plan.Recompute {
	case "", "auto":
	case "stage", "blocks":
		w.Recomputes = []string{"full"}
	default:
		w.Recomputes = strings.Split(j.Plan.Recompute, ",")
	}
	return w, w.Ordered()
}
