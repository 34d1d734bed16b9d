package planning

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/tune/shape"
)

// sweepFlags ask for plans of a fixed shape: replicas x stages x groups.
type sweepFlags struct {
	on       bool
	replicas []int
	chunks   []int
	shard    []string
	behind   bool
}

func (f *sweepFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "sweep", false, "rank shapes of a described cluster: replicas x stages x tensor")
	flags.IntSliceVar(&f.replicas, "replicas", nil, "with --sweep: replicas of the pipeline (default: all that fit)")
	flags.IntSliceVar(&f.chunks, "chunks", nil, "with --sweep: virtual stages on each device")
	flags.StringSliceVar(&f.shard, "shard", nil, "with --sweep: what replicas divide: none, zero1, zero2, zero3")
	flags.BoolVar(&f.behind, "all-reduce-behind", false, "with --sweep: replicas sum gradients behind the step")
}

// wanted says whether any of the flags asks for shapes.
func (f *sweepFlags) wanted() bool {
	return f.on || len(f.replicas) > 0 || len(f.chunks) > 0 || len(f.shard) > 0 || f.behind
}

// ofSearch are the flags that say nothing of shapes.
var ofSearch = []string{"micro-batches", "split", "weights", "pipelines", "planner", "time", "boundary", "profile"}

// shown is how many shapes a table has without --explain.
const shown = 12

// Swept is what --json prints.
type Swept struct {
	Shapes        []*shape.Prediction `json:"shapes"`
	Sensitivities []shape.Sensitivity `json:"sensitivities"`
}

// run ranks shapes.
func (f *sweepFlags) run(c *cobra.Command, j *job.Job, all, asJSON bool, output string) error {
	if !f.on {
		return cli.BadInput(errors.New("--replicas, --chunks, --shard and --all-reduce-behind are of shapes: give --sweep " +
			"too"))
	}
	for _, name := range ofSearch {
		if c.Flags().Changed(name) {
			return cli.BadInput(fmt.Errorf("--%s is of the search over all plans, which shapes are not: leave out --%s or "+
				"--sweep", name, name))
		}
	}
	if j.Cluster == "" {
		return cli.BadInput(errors.New("--sweep predicts shapes on described devices: name them with --cluster"))
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return err
	}
	plain := *j
	plain.Tensor = nil
	described, err := prepare.DescribedCluster(c, &plain)
	if err != nil {
		return err
	}
	described = described.Limited(j.MemoryBytes())
	found, err := shape.Run(m, described, f.sweep(j, described))
	if err != nil {
		return cli.BadInput(err)
	}
	best := found[0]
	sensitive, err := shape.Sensitivities(m, described, best.Shape)
	if err != nil {
		return cli.BadInput(err)
	}
	if output != "" {
		if !best.Fits {
			return cli.BadInput(shape.ErrNothing)
		}
		pl, err := best.Plan(m, described)
		if err != nil {
			return cli.BadInput(err)
		}
		grouped, err := described.Grouped(best.Shape.Tensor, best.Shape.SequenceParallel)
		if err != nil {
			return cli.BadInput(err)
		}
		(&prepare.Prepared{Job: j, Model: m, Cluster: grouped}).Placed(pl)
		pl.Precision = j.Precision
		if err := pl.Write(output); err != nil {
			return err
		}
	}
	if asJSON {
		return cli.WriteJSON(c.OutOrStdout(), Swept{found, sensitive})
	}
	out := c.OutOrStdout()
	if err := drawn(out, m, described, found, sensitive, all); err != nil {
		return err
	}
	return cli.Wrote(out, output)
}

// sweep is what is asked for; what nobody fixes is tried.
func (f *sweepFlags) sweep(j *job.Job, c *cluster.Cluster) shape.Sweep {
	base := shape.Shape{Batch: j.Batch, MicroBatch: 1, Precision: j.Precision, States: len(j.Optimizer.States()),
		Behind: f.behind, SequenceParallel: j.SequenceParallel, Schedule: j.Schedule}
	w := shape.Sweep{Base: base, Tensors: j.Tensor, Replicas: f.replicas, Chunks: f.chunks, Shards: f.shard}
	powers := func(most int) (all []int) {
		for n := 1; n <= most; n *= 2 {
			all = append(all, n)
		}
		return all
	}
	if len(w.Tensors) == 0 {
		w.Tensors = powers(min(8, c.Levels[0].Size))
	}
	if w.Stages = []int{j.Stages}; j.Stages == 0 {
		w.Stages = powers(min(64, len(c.Devices)))
	}
	if len(w.Replicas) == 0 {
		w.Replicas = []int{0}
	}
	switch {
	case j.MicroBatch > 0:
		w.MicroBatches = []int{j.MicroBatch}
	default:
		w.MicroBatches = powers(16)
	}
	switch j.Recompute {
	case "", "auto":
		w.Recomputes = []string{"none", "selective", "full"}
	case "stage":
		w.Recomputes = []string{"full"}
	default:
		w.Recomputes = []string{j.Recompute}
	}
	return w
}

// drawn prints the ranking, where the best one's step goes, what it depends on and what it costs.
func drawn(out io.Writer, m *model.Model, c *cluster.Cluster, found []*shape.Prediction, sensitive []shape.Sensitivity,
	all bool) error {
	screen := terminal.Of(out)
	t := terminal.Table{Columns: []terminal.Column{{Heading: "dp", Number: true}, {Heading: "pp", Number: true},
		{Heading: "tp", Number: true}, {Heading: "micro-batches", Number: true}, {Heading: "chunks", Number: true, Spare: 2},
		{Heading: "recompute"}, {Heading: "divide", Spare: 1}, {Heading: "step", Number: true},
		{Heading: "samples/s", Number: true}, {Heading: "holds", Number: true}, {Heading: ""}}}
	best := found[0]
	n := 0
	for _, p := range found {
		if n++; n > shown && !all {
			break
		}
		s := p.Shape
		most := int64(0)
		for _, b := range p.MemoryBytes {
			most = max(most, b)
		}
		mark := strings.Repeat("■", max(1, int(10*best.StepS/p.StepS+0.5)))
		if !p.Fits {
			mark = "does not fit"
		}
		t.Add(fmt.Sprint(s.Replicas), fmt.Sprint(s.Stages), fmt.Sprint(s.Tensor),
			fmt.Sprintf("%d of %d", s.MicroBatches(), s.MicroBatch), fmt.Sprint(s.Chunks), s.Recompute, s.Shard,
			terminal.Duration(p.StepS), terminal.Number(float64(s.Batch)/p.StepS, 4), terminal.Bytes(most), mark)
	}
	if err := t.Write(out, screen); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	s := best.Shape
	rest := ""
	if left := len(found) - shown; left > 0 && !all {
		rest = fmt.Sprintf(" (of %d shapes; --explain shows the rest)", len(found))
	}
	fmt.Fprint(out, screen.Wrap("best        ", "            ", s.String()+rest))
	if idle := len(c.Devices) - s.Devices(); idle > 0 {
		fmt.Fprintf(out, "idle        %s of %d\n", terminal.Count(idle, "device"), len(c.Devices))
	}
	p := best.Parts
	var parts []string
	for _, part := range []struct {
		name string
		s    float64
	}{{"kernels", p.KernelsS}, {"sums of groups", p.SumsS}, {"computed again", p.AgainS}, {"gathers", p.GatherS},
		{"bubble", p.BubbleS}, {"gradients", p.GradientsS}, {"update", p.UpdateS}, {"fixed", p.FixedS}} {
		if part.s > 0.0005*best.StepS {
			parts = append(parts, fmt.Sprintf("%s %.1f %%", part.name, 100*part.s/best.StepS))
		}
	}
	step := terminal.Duration(best.StepS) + ": " + strings.Join(parts, ", ")
	fmt.Fprint(out, screen.Wrap("step        ", "            ", step))
	d := c.DeviceTypes[c.Devices[0]]
	if peak := d.Peak(s.Precision) * float64(s.Devices()); peak > 0 {
		fmt.Fprintf(out, "utilisation %.1f %% of the peak, without what is computed again\n",
			100*best.FLOPs/best.StepS/peak)
	}
	if d.PricePerHour > 0 {
		cost := d.PricePerHour * float64(len(c.Devices)) * best.StepS / 3600 / float64(s.Batch)
		fmt.Fprintf(out, "cost        %.4g for a million samples", 1e6*cost)
		if shape := m.Inputs[0].Shape; len(shape) == 1 && shape[0] > 1 {
			fmt.Fprintf(out, ", %.4g for a million tokens", 1e6*cost/float64(shape[0]))
		}
		fmt.Fprintln(out, ", with all devices paid for")
	}
	for i, a := range sensitive {
		lead := "            "
		if i == 0 {
			lead = "if          "
		}
		fmt.Fprint(out, screen.Wrap(lead, "            ", fmt.Sprintf("%s: %s a step, %+.1f %%", a.Assumption,
			terminal.Duration(a.StepS), 100*(a.StepS/best.StepS-1))))
	}
	return nil
}
