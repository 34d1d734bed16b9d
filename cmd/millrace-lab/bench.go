package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/stage/optim"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure millrace on this machine",
		Long: `Each benchmark prints tables in Markdown. --json prints every measurement, and -o writes a file for
lab/results. From these files millrace-lab benchmarks makes BENCHMARKS.md.

Do not use the machine for anything else meanwhile. If OPENBLAS_CORETYPE is set, unset it: it selects the
kernels of millrace and of its rivals.`,
		Example: "  millrace-lab bench peers --data text.txt\n" +
			"  millrace-lab bench prediction --model gpt --workers 2 --splits 20",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(benchPeersCommand(), benchImportedCommand(), benchSpeedupCommand(), benchPredictionCommand(),
		benchOrdersCommand(), benchPlanCommand(), benchCurvesCommand(), benchMemoryCommand(), benchP2PCommand(),
		benchSlowCommand(), benchLiveCommand(), benchTunerCommand(), benchShapesCommand(),
		benchBoundCommand())
	return c
}

// unitOf returns the unit in which a model's speed is counted.
func unitOf(m *model.Model) race.Unit {
	for _, in := range m.Inputs {
		if in.Name != m.Target() && in.DType == model.Int && len(in.Shape) == 1 {
			return race.Unit{Name: "tokens", PerSample: in.Shape[0]}
		}
	}
	return race.Unit{Name: "samples", PerSample: 1}
}

// experiment runs millrace processes that train given plans, and compares them. They share one folder. Progress is
// printed on `log`.
type experiment struct {
	job   *job.Job
	log   io.Writer
	meter *cli.Meter // shows the current work; nil: nothing is shown
	dir   string     // folder for plans and profiles
	steps int        // steps of each visit
	rate  float64    // learning rate
	plans int
}

// openExperiment makes the folder of an experiment, which `remove` deletes. `steps` is the number of steps in a visit.
func openExperiment(c *cobra.Command, j *job.Job, steps int) (x *experiment, remove func(), err error) {
	dir, forget, err := scratch()
	if err != nil {
		return nil, nil, err
	}
	meter := cli.StartMeter("bench")
	return &experiment{job: j, log: c.ErrOrStderr(), meter: meter, dir: dir, steps: steps, rate: timedRate},
		func() { meter.Stop(); forget() }, nil
}

// timedRate is the learning rate of trainings that are only timed. It is so small that no policy ends in NaN,
// however many steps a comparison takes.
const timedRate = 1e-5

// command returns the command that trains a plan with millrace. `threads` is the number of threads in each operator.
func (x *experiment) command(name string, pl *plan.Plan, threads int) (race.Command, error) {
	path := filepath.Join(x.dir, fmt.Sprintf("plan%d.json", x.plans))
	x.plans++
	self, err := os.Executable()
	if err != nil {
		return race.Command{}, fmt.Errorf("bench: %w", err)
	}
	own := *x.job
	own.Plan.File, own.Machine.ThreadsPerWorker = path, threads
	own.Train.Rate = optim.Rate{Kind: optim.Constant, Base: x.rate, Total: 1, Power: 1}
	file := strings.TrimSuffix(path, ".json") + ".yaml"
	if err := own.Write(file); err != nil {
		return race.Command{}, cli.BadInput(err)
	}
	c := race.Command{Name: name, Path: self, Args: []string{"session", file}, Steps: x.steps}
	if threads > 1 && os.Getenv("OMP_WAIT_POLICY") == "" {
		// As in bench/peers/settings.py: OpenMP's threads must not spin while the BLAS's threads compute.
		c.Env = append(os.Environ(), "OMP_WAIT_POLICY=PASSIVE")
	}
	return c, pl.Write(path)
}

// singles returns the candidates for the best single worker with this many threads, one for each micro-batch size. The
// first size is the batch. Each further size is half of the size before, until a size is odd.
func (x *experiment) singles(m *model.Model, threads int) ([]race.Command, error) {
	var out []race.Command
	for size := x.job.Plan.Batch; ; size /= 2 {
		c, err := x.command(fmt.Sprintf("one worker (micro-batch %d, threads %d)", size, threads),
			curves.Alone(m, size, x.job.Plan.Batch), threads)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
		if size%2 != 0 {
			slices.Reverse(out)
			return out, nil
		}
	}
}

// doing shows the current work.
func (x *experiment) doing(format string, args ...any) {
	if x.meter != nil {
		x.meter.Doing(fmt.Sprintf(format, args...))
	}
}

// duel runs two commands in pairs, both after warm-up. If the function `after` is not nil, it is called after every
// pair with both rivals.
func (x *experiment) duel(ctx context.Context, a, b race.Command, pairs int,
	after func(a, b *race.Rival)) (result race.Result, err error) {
	err = race.Together(ctx, []race.Command{a, b}, func(open []*race.Rival) (err error) {
		doing := func(pair int) {
			x.doing("%s over %s, pair %d of %d", a.Name, b.Name, pair, pairs)
		}
		x.doing("warming %s and %s", a.Name, b.Name)
		if err := race.Warm(ctx, 3, open[0], open[1]); err != nil {
			return err
		}
		doing(1)
		result, err = race.Pairs(ctx, open[0], open[1], pairs, func(p race.Pair) {
			fmt.Fprintf(x.log, "  pair %d of %d: %s over %s %.3f\n", p.Done, p.Of, a.Name, b.Name, p.Ratio())
			doing(min(p.Done+1, p.Of))
			if after != nil {
				after(open[0], open[1])
			}
		})
		return err
	})
	return result, err
}

// rounds runs commands side by side and visits each once per round. If the function `before` is not nil, it is called
// before each round. The function `visited` is called after each visit, with the command's position.
func (x *experiment) rounds(ctx context.Context, commands []race.Command, rounds int, before func(round int) error,
	visited func(at int, r *race.Rival)) error {
	x.doing("opening %s", terminal.Count(len(commands), "command"))
	return race.Together(ctx, commands, func(rivals []*race.Rival) error {
		x.doing("round 1 of %d", rounds)
		told := func(at int, _ race.Work) { visited(at, rivals[at]) }
		return race.Rounds(ctx, rivals, rounds, before, told, func(round int) {
			fmt.Fprintf(x.log, "  round %d of %d\n", round, rounds)
			x.doing("round %d of %d", min(round+1, rounds), rounds)
		})
	})
}

// sweep finds the best of candidates, with this many visits to each.
func (x *experiment) sweep(ctx context.Context, candidates []race.Command, visits int,
	u race.Unit) ([]race.Measured, error) {
	done, of := 0, len(candidates)
	x.doing("candidate 1 of %d", of)
	return race.Sweep(ctx, candidates, visits, race.Open, func(m race.Measured) {
		fmt.Fprintf(x.log, "  %s: %.0f %s/s\n", m.Name, m.Median*float64(u.PerSample), u.Name)
		if done++; done < of {
			x.doing("candidate %d of %d", done+1, of)
		} else {
			x.doing("the best candidates once more")
		}
	})
}

// scratch makes a folder for the duration of a benchmark.
func scratch() (dir string, remove func(), err error) {
	if dir, remove, err = document.Scratch("millrace-bench-"); err != nil {
		return "", nil, fmt.Errorf("bench: %w", err)
	}
	return dir, remove, nil
}

// reason returns the first reason why a plan was chosen, or a short description of a plan without reasons.
func reason(pl *plan.Plan) string {
	if len(pl.Why) > 0 {
		return pl.Why[0]
	}
	return report.ShortPlan(pl)
}
