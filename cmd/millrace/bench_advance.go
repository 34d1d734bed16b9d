package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/predict"
)

func benchAdvanceCommand() *cobra.Command {
	var flags jobFlags
	own := measuring{rounds: 40, steps: 3}
	c := &cobra.Command{
		Use: "advance", Short: "Advance forward propagation on real tensors: its time and memory against 1F1B's and AFAB's",
		Long: `Advance forward propagation (AvgPipe, section 4.2) adapts in a training of its own until it
settles, one forward more in advance on each visit. Then 1F1B, the depths it settled on and AFAB
train in turn, round after round, each in a process of its own that stands still while another
trains. In a round each has two visits, the second in the opposite order, so that a machine that slows
down in between slows all alike; many short rounds say more than few long ones. Messages must take
time for depths to matter: give --wire.`,
		Example: "  millrace bench advance --model gpt --batch 32 --micro-batches 16 --wire examples/two-machines-1gbps.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.job()
			if err != nil {
				return err
			}
			if err := own.check(c, 3, "to judge depths by"); err != nil {
				return err
			}
			return benchAdvance(c, j, own)
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, []job.Option{dataOption()})
	own.add(c, "steps")
	return c
}

// depth is one choice of depths, predicted and measured.
type depth struct {
	Name      string         `json:"name"`
	Depths    []int          `json:"depths"` // K_i by stage
	Predicted plan.Predicted `json:"predicted"`
	StepS     []float64      `json:"step_s"` // measured, by round the mean of both visits
	PeakBytes []int64        `json:"peak_bytes"`
	Against   float64        `json:"over_afab"` // its step over AFAB's, median over rounds
	Interval  stats.Interval `json:"interval"`
}

// advanced is what bench advance prints with --json.
type advanced struct {
	Model        string       `json:"model"`
	Cluster      string       `json:"cluster"`
	MicroBatches int          `json:"micro_batches"`
	Adapted      []adaptation `json:"adapted"`
	Orders       []*depth     `json:"orders"`
}

// adaptation is a visit while depths adapt.
type adaptation struct {
	Depths []int   `json:"depths"`
	StepS  float64 `json:"step_s"` // median of the visit
}

// mostAdaptations is beyond what any pipeline here takes to settle.
const mostAdaptations = 200

func benchAdvance(c *cobra.Command, j *job.Job, m measuring) error {
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	p, err := prepareHardware(c, j)
	if err != nil {
		return err
	}
	own := sessions{job: j, dir: dir, steps: m.steps}
	base, err := plainPipeline(c, p)
	if err != nil {
		return err
	}
	out := &advanced{Model: p.model.Name, Cluster: p.cluster.Name, MicroBatches: base.MicroBatches}
	settled, err := out.adapt(c, &own, base)
	if err != nil {
		return err
	}
	var commands []race.Command
	all := slices.Repeat([]int{base.MicroBatches}, len(base.Stages))
	for _, d := range []*depth{{Name: "1F1B", Depths: out.Adapted[0].Depths}, {Name: "advance, settled", Depths: settled}, {Name: "AFAB", Depths: all}} {
		pl, err := predict.WithDepths(p.profile, p.cluster, base, j.Clip > 0, d.Depths)
		if err != nil {
			return err
		}
		d.Predicted = *pl.Predicted
		command, err := own.command(d.Name, pl, j.ThreadsPerWorker)
		if err != nil {
			return err
		}
		commands, out.Orders = append(commands, command), append(out.Orders, d)
	}
	if err := out.measure(c, commands, m.rounds); err != nil {
		return err
	}
	if m.asJSON {
		return writeJSON(c.OutOrStdout(), out)
	}
	return out.write(c.OutOrStdout())
}

// plainPipeline is the best plan under 1F1B, over several stages of a worker each.
func plainPipeline(c *cobra.Command, p *planned) (*plan.Plan, error) {
	if p.job.Stages == 0 && p.job.Split == nil {
		p.job.Stages = p.job.Workers
	}
	fix, err := overrides(p.job, namesOf(p.model))
	if err != nil {
		return nil, err
	}
	fix.Schedule, fix.Weights = baseOrder, schedule.Sync
	found, err := tune.Search(c.Context(), tune.Request{
		Profile: p.profile, Cluster: p.cluster, Batch: p.job.Batch, Clip: p.job.Clip > 0, Fix: fix, Runnable: true,
		Whole: p.model.NormalisesMicroBatches() != nil,
	})
	if err != nil {
		return nil, badInput(err)
	}
	if len(found.Best.Stages) < 2 {
		return nil, badInput(fmt.Errorf("the plan has one stage; depths are of pipelines: give --stages 2 or more and as many --workers"))
	}
	return found.Best, nil
}

// adapt trains until the depths are final, and gives them.
func (a *advanced) adapt(c *cobra.Command, own *sessions, base *plan.Plan) (settled []int, err error) {
	start := *base
	start.Stages = slices.Clone(base.Stages)
	for i := range start.Stages {
		start.Stages[i].Warmup = 0
	}
	command, err := own.command("advance", &start, own.job.ThreadsPerWorker)
	if err != nil {
		return nil, err
	}
	command.Args = append(command.Args, "--advance", job.AutoAdvance)
	err = race.Together(c.Context(), []race.Command{command}, func(rivals []*race.Rival) error {
		r := rivals[0]
		for range mostAdaptations {
			if _, err := r.Step(c.Context()); err != nil {
				return err
			}
			if r.Settled {
				settled = r.Depths
				return nil
			}
			a.Adapted = append(a.Adapted, adaptation{r.Depths, r.StepS})
			fmt.Fprintf(c.ErrOrStderr(), "  depths %v: %.4g ms a step\n", r.Depths, 1e3*r.StepS)
		}
		return fmt.Errorf("bench: depths have not settled within %d visits", mostAdaptations)
	})
	return settled, err
}

// measure visits every order twice a round, in another sequence each time and back.
func (a *advanced) measure(c *cobra.Command, commands []race.Command, rounds int) error {
	err := race.Together(c.Context(), commands, func(rivals []*race.Rival) error {
		there := make([][]float64, len(rivals)) // of each order, its visits of the round under way
		return race.Mirrored(c.Context(), rivals, rounds, func(at int) {
			d := a.Orders[at]
			if there[at] = append(there[at], rivals[at].StepS); len(there[at]) == 2 {
				d.StepS, there[at] = append(d.StepS, (there[at][0]+there[at][1])/2), nil
			}
			d.PeakBytes = rivals[at].PeakBytes
		}, tellRound(c.ErrOrStderr(), rounds))
	})
	if err != nil {
		return err
	}
	afab := a.Orders[len(a.Orders)-1]
	for _, d := range a.Orders {
		var over []float64
		for i, s := range d.StepS {
			over = append(over, s/afab.StepS[i])
		}
		d.Against = stats.Median(over)
		var err error
		if d.Interval, err = stats.MedianInterval(over, 0.95); err != nil {
			return err
		}
	}
	return nil
}

// write is for people.
func (a *advanced) write(w io.Writer) error {
	fmt.Fprintf(w, "%s on %s, %d micro-batches: settled after %d visits\n\n", a.Model, a.Cluster, a.MicroBatches, len(a.Adapted))
	t := report.Table{Head: []string{"order", "depths", " predicted ms", " measured ms", " over AFAB", " 95 % interval", " predicted memory", " fullest worker", " of AFAB's"}}
	most := slices.Max(a.Orders[len(a.Orders)-1].PeakBytes)
	for _, d := range a.Orders {
		peak := slices.Max(d.PeakBytes)
		t.Add(d.Name, fmt.Sprint(d.Depths), fmt.Sprintf("%.1f", 1e3*d.Predicted.StepS), fmt.Sprintf("%.1f", 1e3*stats.Median(d.StepS)), fmt.Sprintf("%.3f", d.Against),
			fmt.Sprintf("%.3f to %.3f", d.Interval.Lo, d.Interval.Hi), cluster.FormatBytes(slices.Max(d.Predicted.MemoryBytes)), cluster.FormatBytes(peak), percent(float64(peak)/float64(most)))
	}
	return t.Markdown(w)
}
