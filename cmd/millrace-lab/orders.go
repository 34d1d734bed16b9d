package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune"
)

func benchOrdersCommand() *cobra.Command {
	var flags prepare.JobFlags
	own := measuring{rounds: 15, stepsDoc: bench.UntilDoc}
	var only []string
	c := &cobra.Command{
		Use: "orders", Short: "Every schedule and weight policy on real tensors: step time and memory against their " +
			"predictions, and against 1F1B",
		Long: `Trains the model with every schedule and weight policy in turn, round after round. Each is trained by a
process of its own, which waits while another trains. Each result is compared with 1F1B in the same round,
because what slows the machine for a while slows both. With --clip and --post-validate, schedules with a flush
are measured with and without post-validation. Predictions take no update back. So give a --clip that
gradients seldom exceed; the table says in how many visits they did.

Before every round all predictions are made anew, from a profile that another process then measures, unless
--profile gives one.`,
		Example: "  millrace-lab bench orders --model gpt --data text.txt --workers 2 --batch 32 --micro-batches 4\n" +
			"  millrace-lab bench orders --model convnet --workers 4 --cores 2 --batch 64 --only zb-h1,1f1b-rr",
		Args: cobra.NoArgs,
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

// leastOfStream is how many steps a visit needs at least to measure the step of a stream. ofStream is the reason.
const (
	leastOfStream = 4
	ofStream      = "because a stream's steps are told by their ends, of which the last comes early"
)

func benchOrders(c *cobra.Command, j *job.Job, only []string, m measuring) error {
	head := record.Begin("orders", "Schedules and weight policies over 1F1B")
	own, remove, err := openExperiment(c, j, m.steps)
	if err != nil {
		return err
	}
	defer remove()
	p, err := prepare.PrepareHardware(c, j)
	if err != nil {
		return err
	}
	orders, err := ordersOf(c, p, own, only)
	if err != nil {
		return err
	}
	var commands []race.Command
	var plans []*plan.Plan
	for _, o := range orders {
		if m.steps == 0 {
			o.Command.Steps = bench.VisitSteps(o.Predicted.StepS, leastOfStream)
		}
		commands, plans = append(commands, o.Command), append(plans, o.Plan)
	}
	ahead := foresight{p: p, dir: own.dir}
	err = own.rounds(c.Context(), commands, m.rounds, func(int) error {
		predicted, err := ahead.again(c.Context(), plans, 0)
		for i, o := range orders {
			if err == nil {
				o.ExpectedS = append(o.ExpectedS, predicted[i].StepS)
			}
		}
		return err
	}, func(at int, r *race.Rival) {
		o := orders[at]
		o.StepS, o.PeakBytes = append(o.StepS, r.StepS), r.PeakBytes
		if r.TakenBack > 0 {
			o.TakenBack++
		}
	})
	if err != nil {
		return err
	}
	if err := bench.CompareOrders(orders); err != nil {
		return err
	}
	head.End()
	if err := record.Write(m.output, &bench.Orders{Head: head, Model: p.Model.Name, Workers: j.Machine.Workers,
		Orders: orders}); err != nil {
		return err
	}
	if m.asJSON {
		return cli.WriteJSON(c.OutOrStdout(), orders)
	}
	return bench.WriteOrders(c.OutOrStdout(), orders)
}

// leavesIdle reports whether a family needs only one of several workers.
func leavesIdle(f family.Family) bool {
	return schedule.Settings{Placement: f.Placement(2, 1)}.Workers() < 2
}

// ordersOf plans each family and policy that fits a plain pipeline of this model, 1F1B first.
func ordersOf(c *cobra.Command, p *prepare.Prepared, own *experiment, only []string) ([]*bench.Order, error) {
	fix, err := prepare.Overrides(p.Job, prepare.NamesOf(p.Model))
	if err != nil {
		return nil, err
	}
	var out []*bench.Order
	for _, f := range family.All() {
		if leavesIdle(f) || f.Streaming || len(only) > 0 && f.Name != bench.BaseOrder && !slices.Contains(only, f.Name) {
			continue
		}
		policies := f.Policies
		if policies == nil {
			policies = []schedule.Policy{schedule.Sync}
		}
		for _, policy := range policies {
			for _, later := range []bool{false, true} {
				if later && (!p.Job.Plan.PostValidate || policy != schedule.Sync) {
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
	at := slices.IndexFunc(out, func(o *bench.Order) bool { return o.Name == bench.BaseOrder })
	if at < 0 {
		return nil, cli.BadInput(fmt.Errorf("1f1b has no plan here, and everything is compared with it"))
	}
	out[0], out[at] = out[at], out[0]
	return out, nil
}

func orderOf(ctx context.Context, p *prepare.Prepared, own *experiment, fix tune.Overrides, family string,
	policy schedule.Policy) (*bench.Order, error) {
	fix.Schedule, fix.Weights = family, policy
	found, err := tune.Search(ctx, tune.Request{
		Profile: p.Profile, Cluster: p.Cluster, Batch: p.Job.Plan.Batch, Clip: p.Job.Train.Clip > 0, Fix: fix, Runnable: true,
		Whole: p.Model.NormalisesMicroBatches() != nil,
	})
	if err != nil {
		return nil, err
	}
	o := &bench.Order{Name: family, Predicted: *found.Best.Predicted, Plan: found.Best}
	if policy != schedule.Sync {
		o.Name += " " + string(policy)
	}
	if fix.PostValidate {
		o.Name += " validated later"
	}
	o.Command, err = own.command(o.Name, found.Best, p.Job.Machine.ThreadsPerWorker)
	return o, err
}
