package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/tune"
)

// slowFlags are the flags of bench slow.
type slowFlags struct {
	rates, models []string
	hosts         []int
	pairs         int
	output        string
	plot          string
	profiles      string
}

func benchSlowCommand() *cobra.Command {
	var names []string
	for _, w := range slow.Workloads {
		names = append(names, w.Name)
	}
	own := slowFlags{rates: []string{"50mbit", "100mbit", "500mbit", "1gbit"}, models: names, hosts: []int{2, 4},
		pairs: bench.LeastRepeats, output: "lab/results/slow.json"}
	c := &cobra.Command{
		Use: "slow", Short: "Compare with data parallelism between hosts whose links are slow",
		Long: `Makes hosts from network namespaces on this machine. A bridge joins them, and tc limits their links in both
directions. On these hosts, the following train in turn:

  millrace, by the plan that it chooses for a cluster file that describes these hosts and links
  millrace, plain data parallelism with overlap
  PyTorch DDP over Gloo, and the same with gradients of micro-batches added up first (no_sync)

All train the same model on random data, with the same number of rows in a step and one thread in each
process. Host i runs on processor i mod the number of processors. Each cell gives DDP's all-reduce time over
its compute time, the speed of the chosen plan as a multiple of each rival's with a 95 % interval, and the
prediction. If hosts share a processor, the prediction is not judged. Each cell is written to the file -o at
once, in place of an earlier cell of the same model, hosts and rate, so the cells can be measured in several
runs. The verb ends with 1 if a cell of the file breaks a promise: its whole interval is below 0.97 of the
faster form of DDP, or the chosen plan is less than 5 times as fast as that for vgg16-quarter at 100 Mbit/s or
less.

It needs root, Debian's iproute2, and python3-torch (make setup-pytorch). --plot draws the file's cells and
measures nothing.`,
		Example: "  millrace-lab bench slow\n" +
			"  millrace-lab bench slow --rates 100mbit --hosts 2 --models vgg16-quarter --pairs 6\n" +
			"  millrace-lab bench slow --plot docs/slow.svg",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if own.plot != "" {
				return plotSlow(own)
			}
			return benchSlow(c, own)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&own.rates, "rates", own.rates, "what links are limited to")
	f.IntSliceVar(&own.hosts, "hosts", own.hosts, "how many hosts")
	f.StringSliceVar(&own.models, "models", own.models, "workloads: "+strings.Join(names, ", "))
	f.IntVar(&own.pairs, "pairs", own.pairs, "rounds of a cell, in each of which every rival is visited once")
	f.StringVarP(&own.output, "output", "o", own.output, "file of results")
	f.StringVar(&own.profiles, "profiles", "", "folder that profiles are kept in, and taken from (default: measured)")
	f.StringVar(&own.plot, "plot", "", "draw the file's cells to this SVG file, and measure nothing")
	return c
}

// cellsOf returns the cells that the flags ask for, in the order of models, hosts and rates.
func (f slowFlags) cellsOf() (all []slowCell, err error) {
	if f.pairs < bench.LeastRepeats {
		return nil, fmt.Errorf("--pairs %d; give %d at least, for an interval around their median", f.pairs,
			bench.LeastRepeats)
	}
	for _, name := range f.models {
		w, err := slow.FindWorkload(name)
		if err != nil {
			return nil, fmt.Errorf("--models: %w", err)
		}
		for _, hosts := range f.hosts {
			if hosts < 2 || hosts > slow.MostHosts {
				return nil, fmt.Errorf("--hosts %d; there are 2 to %d", hosts, slow.MostHosts)
			}
			for _, text := range f.rates {
				r, err := slow.ParseRate(text)
				if err != nil {
					return nil, fmt.Errorf("--rates: %w", err)
				}
				all = append(all, slowCell{of: w, hosts: hosts, rate: r})
			}
		}
	}
	return all, nil
}

func plotSlow(f slowFlags) error {
	if ext := filepath.Ext(f.plot); ext != ".svg" {
		return cli.BadInput(fmt.Errorf("--plot %s; it is an .svg file", f.plot))
	}
	r, err := slow.Read(f.output)
	if err != nil {
		return cli.BadInput(err)
	}
	if len(r.Cells) == 0 {
		return cli.BadInput(fmt.Errorf("%s has no cells to draw; measure some without --plot", f.output))
	}
	p, err := r.Plot()
	if err != nil {
		return cli.BadInput(err)
	}
	return document.Write(f.plot, p.SVG)
}

// slowCell is a combination of model, number of hosts and rate that is to be measured.
type slowCell struct {
	of    slow.Workload
	hosts int
	rate  slow.Rate
}

// slowBench measures cells.
type slowBench struct {
	slowFlags
	c        *cobra.Command
	python   string
	dir      string // scripts, plans, and the files by which processes meet
	results  *slow.Results
	profiled map[string]*profile.Profile // by model and batch
	meetings int                         // number of millrace's own runs so far; each uses its own port
}

func benchSlow(c *cobra.Command, f slowFlags) error {
	cells, err := f.cellsOf()
	if err != nil {
		return cli.BadInput(err)
	}
	b := &slowBench{slowFlags: f, c: c, profiled: map[string]*profile.Profile{}}
	if b.results, err = slow.Read(f.output); err != nil {
		return cli.BadInput(err)
	}
	if b.python, b.results.Torch, err = race.Python(c.Context()); err != nil {
		return fmt.Errorf("%w, or run: make setup-pytorch", err)
	}
	b.results.Head = record.Begin("slow", "Trainings between hosts with slow links")
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	b.dir = dir
	if err := race.WriteScripts(dir); err != nil {
		return err
	}
	for i, cell := range cells {
		began := time.Now()
		done, err := b.measure(cell)
		if err != nil {
			return err
		}
		done.TookS = time.Since(began).Seconds()
		b.results.Put(*done)
		b.results.End()
		if err := record.Write(f.output, b.results); err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "%d of %d: %s, in %.0f s\n", i+1, len(cells), done.Sentence(), done.TookS)
	}
	if err := b.results.Markdown(c.OutOrStdout()); err != nil {
		return err
	}
	return b.results.Broken()
}

// jobOf returns millrace's job for a cell.
func (s slowCell) jobOf() (*job.Job, error) {
	j := job.Default()
	j.Model.Name, j.Model.Settings, j.Plan.Batch, j.Machine.Workers = s.of.Family, s.of.Settings, s.of.Rows*s.hosts,
		s.hosts
	j.Train.Optimizer.Kind = "sgd"
	j.Train.Rate.Base = timedRate
	return &j, j.Complete()
}

// measure sets up the hosts of a cell, and trains its rivals on them.
func (b *slowBench) measure(s slowCell) (*slow.Cell, error) {
	ctx := b.c.Context()
	j, err := s.jobOf()
	if err != nil {
		return nil, err
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return nil, err
	}
	pr, err := b.profile(ctx, s, j)
	if err != nil {
		return nil, err
	}
	search := tune.Request{Profile: pr, Cluster: slow.Cluster(s.hosts, runtime.NumCPU(), s.rate, pr.DeviceTypes()[0], 0),
		Batch: j.Plan.Batch, Runnable: true}
	chosen, err := tune.Search(ctx, search)
	if err != nil {
		return nil, err
	}
	search.Fix = tune.Overrides{Schedule: "dp-overlap"}
	plain, err := tune.Search(ctx, search)
	if err != nil {
		return nil, err
	}
	cell := &slow.Cell{Model: s.of.Name, Hosts: s.hosts, Rate: s.rate.Name, BitsPerSecond: s.rate.BitsPerSecond,
		Batch: j.Plan.Batch, ParameterBytes: 4 * m.ParameterElements(), Plan: report.ShortPlan(chosen.Best),
		Date: b.results.Machine.Date, Load: record.ThisMachine().Load}
	fmt.Fprintf(b.c.ErrOrStderr(), "%s: %s\n", cell.Name(), reason(chosen.Best))
	hosts, err := slow.Open(ctx, s.hosts, runtime.NumCPU(), s.rate)
	if err != nil {
		return nil, err
	}
	defer hosts.Close()
	ours, err := b.ours(hosts, j, slow.Chosen, chosen.Best)
	if err != nil {
		return nil, err
	}
	dp, err := b.ours(hosts, j, slow.Plain, plain.Best)
	if err != nil {
		return nil, err
	}
	described := filepath.Join(b.dir, s.of.Name+".json")
	if err := slow.Describe(described, m); err != nil {
		return nil, err
	}
	commands := []race.Command{ours, dp,
		b.theirs(hosts, s, slow.DDP, described, s.of.Rows, 1),
		b.theirs(hosts, s, slow.Accumulated, described, s.of.Rows/s.of.Pieces, 0)}
	predicted := []float64{chosen.Best.Predicted.StepS, plain.Best.Predicted.StepS}
	for i := range commands {
		commands[i].Steps = slowSteps(predicted[min(i, 1)])
	}
	return cell, b.visit(ctx, cell, commands, predicted)
}

// slowVisitS is the length of a visit in seconds. A visit has at least one step, and at most mostSlowSteps.
const slowVisitS, mostSlowSteps = 2, 16

func slowSteps(stepS float64) int {
	return max(1, min(mostSlowSteps, int(math.Round(slowVisitS/stepS))))
}

// visit trains all rivals in rounds.
func (b *slowBench) visit(ctx context.Context, cell *slow.Cell, commands []race.Command, predicted []float64) error {
	return race.Together(ctx, commands, func(rivals []*race.Rival) error {
		for i, r := range rivals {
			run := slow.Run{Name: commands[i].Name}
			if i < len(predicted) {
				run.PredictedS = predicted[i]
			}
			cell.Runs = append(cell.Runs, run)
			if 4*r.Description.Parameters != cell.ParameterBytes || r.Description.Threads != 1 {
				return fmt.Errorf("bench: %s trains %d parameters with %d threads; the model has %d, and one thread is meant",
					r.Name(), r.Description.Parameters, r.Description.Threads, cell.ParameterBytes/4)
			}
			if r.Name() == slow.DDP {
				cell.ComputeS, cell.ReduceS = r.Description.ComputeS, r.Description.ReduceS
			}
		}
		err := race.Rounds(ctx, rivals, b.pairs, nil, func(at int, w race.Work) {
			cell.Runs[at].Rates = append(cell.Runs[at].Rates, w.Rate())
		}, func(round int) {
			fmt.Fprintf(b.c.ErrOrStderr(), "  round %d of %d\n", round, b.pairs)
		})
		if err != nil {
			return err
		}
		return cell.Compare()
	})
}

// theirs returns the command of DDP with micro-batches of `micro` rows. If `alone` is 1, the command also measures how
// long computing and the all-reduce take when each runs alone.
func (b *slowBench) theirs(hosts *slow.Hosts, s slowCell, name, described string, micro, alone int) race.Command {
	meeting := filepath.Join(b.dir, rand.Text())
	var all []race.Command
	for rank := range s.hosts {
		all = append(all, race.Command{Name: name, Path: b.python, Args: []string{"-B", filepath.Join(b.dir, "ddp_links.py"),
			"--model", described, "--batch", strconv.Itoa(s.of.Rows * s.hosts), "--micro", strconv.Itoa(micro),
			"--alone", strconv.Itoa(alone), "--lr", strconv.FormatFloat(timedRate, 'g', -1, 64)},
			Env: append(os.Environ(), "RIVAL_RANK="+strconv.Itoa(rank), "RIVAL_SIZE="+strconv.Itoa(s.hosts),
				"RIVAL_MEETING="+meeting, "GLOO_SOCKET_IFNAME="+slow.Interface)})
	}
	return hosts.Group(all)
}

// ours returns the command that trains a plan with millrace, with one worker on each host that the plan uses.
func (b *slowBench) ours(hosts *slow.Hosts, j *job.Job, name string, pl *plan.Plan) (race.Command, error) {
	b.meetings++
	x := &experiment{job: j, dir: filepath.Join(b.dir, rand.Text()), steps: 1, rate: timedRate}
	if err := os.Mkdir(x.dir, 0o700); err != nil {
		return race.Command{}, fmt.Errorf("bench: %w", err)
	}
	one, err := x.command(name, pl, 1)
	if err != nil {
		return one, err
	}
	token := filepath.Join(x.dir, "token")
	if err := os.WriteFile(token, []byte(rand.Text()), 0o600); err != nil {
		return one, fmt.Errorf("bench: %w", err)
	}
	var all []race.Command
	workers := len(pl.Devices())
	for rank := range workers {
		c := one
		c.Env = append(os.Environ(), launch.RankVar+"="+strconv.Itoa(rank), launch.SizeVar+"="+strconv.Itoa(workers),
			launch.MasterAddrVar+"="+slow.Address(0), launch.RunIDVar+"="+filepath.Base(x.dir), launch.TokenFileVar+"="+token,
			launch.MasterPortVar+"="+strconv.Itoa(launch.DefaultPort+b.meetings))
		all = append(all, c)
	}
	return hosts.Group(all), nil
}

// profile returns the costs of layers at the sizes of a cell's plans. They are measured only once.
func (b *slowBench) profile(ctx context.Context, s slowCell, j *job.Job) (*profile.Profile, error) {
	name := fmt.Sprintf("%s-%d.json", s.of.Name, j.Plan.Batch)
	if pr := b.profiled[name]; pr != nil {
		return pr, nil
	}
	dir := b.dir
	if b.profiles != "" {
		dir = b.profiles
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, cli.BadInput(fmt.Errorf("--profiles: %w", err))
		}
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b.c.ErrOrStderr(), "profiling %s\n", strings.TrimSuffix(name, ".json"))
		own := *j
		own.Machine.Workers = min(j.Machine.Workers, runtime.NumCPU())
		if err := prepare.ProfileInChild(ctx, &own, path, prepare.MicroBatches(&own), 0); err != nil {
			return nil, err
		}
	}
	pr, err := profile.Read(path)
	if err == nil {
		b.profiled[name] = pr
	}
	return pr, cli.BadInput(err)
}
