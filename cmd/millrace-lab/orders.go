package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune"
)

func benchOrdersCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := measuring{rounds: 15, stepsDoc: untilDoc}
	var only []string
	c := &cobra.Command{
		Use: "orders", Short: "Every schedule and weight policy on real tensors: step time and memory against their predictions, and against 1F1B",
		Long: `Trains the model under every schedule and weight policy in turn, round after round, each in a
process of its own that stands still while another trains. Every round compares with that
round's 1F1B: what slows the machine for a while slows both. With --clip and --post-validate,
orders with a flush are measured both ways. Predictions take no update back: give a --clip that
gradients seldom exceed, or the table says in how many visits they did.

Before every round all of them are predicted anew, from a profile that another process measures
then, unless --profile names one.`,
		Example: "  millrace-lab bench orders --model gpt --data text.txt --workers 2 --batch 32 --micro-batches 4\n  millrace-lab bench orders --model convnet --workers 4 --cores 2 --batch 64 --only zb-h1,1f1b-rr",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			j, err := flags.Job()
			if err != nil {
				return err
			}
			if err := own.check(c, leastOfStream, ofStream); err != nil {
				return err
			}
			return benchOrders(c, j, only, own)
		},
	}
	flags.Add(c, job.ModelOptions, job.PlanOptions, []job.Option{prepare.DataOption()})
	own.add(c, "steps")
	c.Flags().StringSliceVar(&only, "only", nil, "schedules to measure beside 1f1b; all if left out")
	return c
}

// leastOfStream is how many steps a visit must have for the length of a stream's, and ofStream why.
const (
	leastOfStream = 4
	ofStream      = "because a stream's steps are told by their ends, of which the last comes early"
)

// order is one schedule under one policy, predicted and measured.
type order struct {
	Name      string         `json:"name"`
	Predicted plan.Predicted `json:"predicted"`  // when it was planned
	ExpectedS []float64      `json:"expected_s"` // its step as predicted before each round
	StepS     []float64      `json:"step_s"`     // measured, by round
	PeakBytes []int64        `json:"peak_bytes"`
	Gain      float64        `json:"gain"` // 1F1B's step over this one's, median over rounds
	Interval  stats.Interval `json:"interval"`
	Expected  float64        `json:"expected_gain"` // by the predictions, likewise
	TakenBack int            `json:"taken_back"`    // rounds in which updates were

	plan    *plan.Plan
	command race.Command
}

// overPredicted is what was measured over what was predicted, the median over rounds.
func (o *order) overPredicted() float64 {
	var ratios []float64
	for i, s := range o.StepS {
		ratios = append(ratios, s/o.ExpectedS[i])
	}
	return stats.Median(ratios)
}

const baseOrder = "1f1b"

func benchOrders(c *cobra.Command, j *job.Job, only []string, m measuring) error {
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	p, err := prepare.PrepareHardware(c, j)
	if err != nil {
		return err
	}
	own := sessions{job: j, dir: dir, steps: m.steps}
	orders, err := ordersOf(c, p, &own, only)
	if err != nil {
		return err
	}
	var commands []race.Command
	var plans []*plan.Plan
	for _, o := range orders {
		if m.steps == 0 {
			o.command.Steps = visitSteps(o.Predicted.StepS, leastOfStream)
		}
		commands, plans = append(commands, o.command), append(plans, o.plan)
	}
	ahead := foresight{p: p, dir: dir}
	tell := tellRound(c.ErrOrStderr(), m.rounds)
	err = race.Together(c.Context(), commands, func(rivals []*race.Rival) error {
		return race.Rounds(c.Context(), rivals, m.rounds, func(round int) error {
			predicted, err := ahead.again(c.Context(), plans, 0)
			for i, o := range orders {
				if err == nil {
					o.ExpectedS = append(o.ExpectedS, predicted[i].StepS)
				}
			}
			return err
		}, func(at int) {
			o, r := orders[at], rivals[at]
			o.StepS, o.PeakBytes = append(o.StepS, r.StepS), r.PeakBytes
			if r.TakenBack > 0 {
				o.TakenBack++
			}
		}, tell)
	})
	if err != nil {
		return err
	}
	base := orders[0]
	for _, o := range orders {
		var gains, expected []float64
		for i, s := range o.StepS {
			gains, expected = append(gains, base.StepS[i]/s), append(expected, base.ExpectedS[i]/o.ExpectedS[i])
		}
		o.Gain, o.Expected = stats.Median(gains), stats.Median(expected)
		if o.Interval, err = stats.MedianInterval(gains, 0.95); err != nil {
			return err
		}
	}
	if m.asJSON {
		return cli.WriteJSON(c.OutOrStdout(), orders)
	}
	return writeOrders(c.OutOrStdout(), orders)
}

// ordersOf plans for every family and policy that a plain pipeline of this model can have,
// 1F1B first.
func ordersOf(c *cobra.Command, p *prepare.Prepared, own *sessions, only []string) ([]*order, error) {
	fix, err := prepare.Overrides(p.Job, prepare.NamesOf(p.Model))
	if err != nil {
		return nil, err
	}
	var out []*order
	for _, f := range family.All() {
		if f.Name == "single" || f.Streaming || len(only) > 0 && f.Name != baseOrder && !slices.Contains(only, f.Name) {
			continue
		}
		policies := f.Policies
		if policies == nil {
			policies = []schedule.Policy{schedule.Sync}
		}
		for _, policy := range policies {
			for _, later := range []bool{false, true} {
				if later && (!p.Job.PostValidate || policy != schedule.Sync) {
					continue
				}
				fix.PostValidate = later
				o, err := orderOf(c.Context(), p, own, fix, f.Name, policy)
				if err != nil {
					fmt.Fprintf(c.ErrOrStderr(), "  %s: %v\n", f.Name, err)
					continue
				}
				out = append(out, o)
			}
		}
	}
	at := slices.IndexFunc(out, func(o *order) bool { return o.Name == baseOrder })
	if at < 0 {
		return nil, cli.BadInput(fmt.Errorf("1f1b has no plan here, and everything is compared with it"))
	}
	out[0], out[at] = out[at], out[0]
	return out, nil
}

func orderOf(ctx context.Context, p *prepare.Prepared, own *sessions, fix tune.Overrides, family string, policy schedule.Policy) (*order, error) {
	fix.Schedule, fix.Weights = family, policy
	found, err := tune.Search(ctx, tune.Request{
		Profile: p.Profile, Cluster: p.Cluster, Batch: p.Job.Batch, Clip: p.Job.Clip > 0, Fix: fix, Runnable: true,
		Whole: p.Model.NormalisesMicroBatches() != nil,
	})
	if err != nil {
		return nil, err
	}
	o := &order{Name: family, Predicted: *found.Best.Predicted, plan: found.Best}
	if policy != schedule.Sync {
		o.Name += " " + string(policy)
	}
	if fix.PostValidate {
		o.Name += " validated later"
	}
	o.command, err = own.command(o.Name, found.Best, p.Job.ThreadsPerWorker)
	return o, err
}

func writeOrders(w io.Writer, orders []*order) error {
	t := report.Table{Head: []string{"schedule", " predicted ms", " measured ms", " measured over predicted", " gain over 1f1b predicted", " measured", " 95 % interval", " memory off"}}
	var steps, memory []float64
	for _, o := range orders {
		off := 0.0
		for k, bytes := range o.PeakBytes {
			off = max(off, race.Off(float64(o.Predicted.MemoryBytes[k]), float64(bytes)))
		}
		ratio := o.overPredicted()
		steps, memory = append(steps, race.Off(1, ratio)), append(memory, off)
		t.Add(o.Name, fmt.Sprintf("%.1f", 1e3*stats.Median(o.ExpectedS)), fmt.Sprintf("%.1f", 1e3*stats.Median(o.StepS)), fmt.Sprintf("%.3f", ratio),
			fmt.Sprintf("%.3f", o.Expected), fmt.Sprintf("%.3f", o.Gain), fmt.Sprintf("%.3f to %.3f", o.Interval.Lo, o.Interval.Hi), fmt.Sprintf("%.1f %%", 100*off))
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	for _, o := range orders {
		if o.TakenBack > 0 {
			if _, err := fmt.Fprintf(w, "\n%s: gradients were clipped in %d of %d rounds, so that updates were taken back and minibatches done again; a step of such a round is its time over its steps.\n", o.Name, o.TakenBack, len(o.StepS)); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "\nWorst: step %.1f %%, memory %.1f %%; median: step %.1f %%, memory %.1f %%.\n",
		100*race.Worst(steps), 100*race.Worst(memory), 100*stats.Median(steps), 100*stats.Median(memory))
	return err
}
