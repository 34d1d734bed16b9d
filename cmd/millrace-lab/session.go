package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
)

// sessionCommand returns the command that trains on request, in the protocol of the rivals. So millrace and its
// rivals are measured by the same rules.
func sessionCommand() *cobra.Command {
	var flags prepare.JobFlags
	return &cobra.Command{
		Use: "session JOB.yaml", Short: "Train step by step for a comparison (used by the benchmarks)", Hidden: true,
		Example: "  (echo step 2; echo step 4) | session job.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			flags.File = args[0]
			j, err := flags.Job()
			if err != nil {
				return err
			}
			return session(c, j)
		},
	}
}

func session(c *cobra.Command, j *job.Job) error {
	m, err := prepare.LoadModel(j)
	if err != nil {
		return err
	}
	pl, err := plan.Read(j.Plan.File)
	if err != nil {
		return cli.BadInput(err)
	}
	train, err := prepare.TrainingData(j, m)
	if err != nil {
		return err
	}
	engine, err := prepare.OpenEngine()
	if err != nil {
		return err
	}
	wired := cluster.Local(engine.DeviceType(), j.Machine.Workers, prepare.CoresOf(j), 0, 0, 1, 1)
	if j.Machine.Wire != "" {
		if wired, err = prepare.Shaped(j, wired); err != nil {
			return cli.BadInput(err)
		}
	}
	v := &visits{
		requests: bufio.NewScanner(c.InOrStdin()), out: json.NewEncoder(c.OutOrStdout()), batch: pl.StepSamples(),
		about: race.Description{
			Name: "millrace", Torch: engine.Info().Torch, Parameters: m.ParameterElements(), Threads: j.Machine.ThreadsPerWorker,
			Batch: pl.Batch(), Micro: pl.MicroBatch, Optimizer: j.Train.Optimizer.Kind, BLASCore: engine.Info().BLASCore,
		},
		program: func(_ trace.Timeline, steps int) (*schedule.Program, error) {
			return programs.Build(pl, m.TiedLayers(), j.Train.Clip > 0, steps)
		},
	}
	world, err := launch.FromEnv(os.Environ())
	if err != nil {
		return cli.BadInput(err)
	}
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	v.stop = stop
	config := run.Config{
		Model: m, Plan: pl, Engine: engine, Data: run.Data{Train: data.Prefetch(train, 4)},
		Train: run.Training{Optimizer: j.Train.Optimizer, Rate: j.Train.Rate, Clip: j.Train.Clip, Seed: j.Data.Seed,
			Steps: math.MaxInt32},
		Machine: run.Machine{ThreadsPerWorker: j.Machine.ThreadsPerWorker, Cores: prepare.SharedCores(j, pl),
			Place: &place.Policy{Bind: place.Always}}, // only one of several sessions trains at a time
		Wire: run.Wire{Carriers: prepare.CarriersOf(j, wired)}, Keep: run.Keeping{Steps: bench.SessionKeeps},
		Next: v.next,
	}
	closed, err := among(ctx, world, &config)
	if err != nil {
		return err
	}
	defer closed()
	_, err = run.Train(ctx, config)
	return err
}

// visits turns requests into Programs. A request asks for a number of steps, called a visit. Package run asks for the
// next Program when all workers have drained. If the visit has ended by then, its request is answered first.
type visits struct {
	requests *bufio.Scanner
	out      *json.Encoder
	batch    int
	about    race.Description
	program  func(so trace.Timeline, steps int) (*schedule.Program, error)
	stop     func() // ends the training

	ready     bool
	steps     int       // steps of the current visit
	until     int       // total number of steps when the visit ends
	due       int       // total number of steps when the visit's current Program ends
	takenBack int       // Programs of the visit that ended early because updates were taken back
	began     time.Time // when the visit was requested
}

// next answers the previous visit and returns the Program of the next one. A visit continues with another Program after
// updates were taken back, or if it is longer than a Program may be.
func (v *visits) next(so trace.Timeline, most int) (*schedule.Program, error) {
	done := 0
	if n := len(so.Steps); n > 0 {
		done = so.Steps[n-1].Step + 1
	}
	if done < v.due {
		v.takenBack++
	}
	if done == v.until {
		if err := v.answer(so); err != nil {
			return nil, err
		}
		if !v.requests.Scan() {
			if err := v.requests.Err(); err != nil {
				return nil, err
			}
			v.stop() // stops before the Program begins, so that every process ends the run normally
			return v.program(so, 1)
		}
		if _, err := fmt.Sscanf(v.requests.Text(), "step %d", &v.steps); err != nil || v.steps < 1 {
			return nil, cli.BadInput(fmt.Errorf("%q is no request; \"step N\" is, with N of 1 or more", v.requests.Text()))
		}
		v.began, v.takenBack, v.until = time.Now(), 0, done+v.steps
	}
	v.due = min(v.until, done+most)
	return v.program(so, v.due-done)
}

// answer prints the result of the visit. Before the first visit it prints a description of this session.
func (v *visits) answer(so trace.Timeline) error {
	if !v.ready {
		v.ready = true
		return v.out.Encode(v.about)
	}
	took := time.Since(v.began).Seconds()
	loss := 0.0
	if n := len(so.Losses); n > 0 {
		loss = so.Losses[n-1].Value
	}
	step := stats.Median(so.StepTimes(v.steps))
	if v.takenBack > 0 {
		step = took / float64(v.steps) // steps whose updates were taken back are not counted
	}
	return v.out.Encode(map[string]any{
		"samples": v.steps * v.batch, "seconds": took, "loss": loss, "step_s": step, "peak_bytes": so.PeakBytes,
		"busy": bench.BusyShare(&so, min(v.steps, bench.SessionKeeps)), "busy_s": bench.BusyOfStep(&so,
			min(v.steps, bench.SessionKeeps)), "taken_back": v.takenBack,
	})
}

// among makes a session one of the processes of a world, with one worker each. It changes the config for this
// process, and returns a function to call after the run. A single process needs no change.
func among(ctx context.Context, w *launch.World, c *run.Config) (func() error, error) {
	if w.Size == 1 {
		return func() error { return nil }, nil
	}
	party, err := together.Meet(ctx, w, together.Build())
	if err != nil {
		return nil, err
	}
	c.Machine.World = &process.World{Rank: w.Rank, Hosts: party.Hosts()}
	var ranks []int
	for rank := range party.Places {
		ranks = append(ranks, rank)
		c.Machine.World.Workers = append(c.Machine.World.Workers, process.Location{Process: rank})
	}
	c.Wire.Carriers, c.Machine.Cores = party.Carriers(ranks, 1), 0
	if w.Rank == 0 {
		c.Machine.World.Links, err = party.Lead(ctx).Begin()
		return party.Close, err
	}
	link, err := party.Follow(ctx, nil)
	c.Machine.World.Links = append(c.Machine.World.Links, link)
	c.Next = nil // only the first process chooses the Programs
	return party.Close, err
}
