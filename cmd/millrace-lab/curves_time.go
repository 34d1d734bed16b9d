package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// measureTimes plans every contender, and measures them in rounds.
func (f *curvesFlags) measureTimes(c *cobra.Command, l *learning) (*curves.Times, error) {
	j := *l.Job
	p, err := prepare.PrepareHardware(c, &j)
	if err != nil {
		return nil, err
	}
	fix, err := prepare.Overrides(&j, prepare.NamesOf(l.Model))
	if err != nil {
		return nil, err
	}
	w := &avgpipe.Workload{Profile: p.Profile, Cluster: p.Cluster, Batch: j.Batch, Clip: j.Clip > 0,
		LimitBytes: j.MemoryBytes()}
	if w.Base, err = avgpipe.Partition(c.Context(), w, fix); err != nil {
		return nil, cli.BadInput(err)
	}
	t := &curves.Times{Version: curves.TimesVersion, Model: l.Model.ID(), Batch: j.Batch, Workers: j.Workers,
		Cores: prepare.CoresOf(&j), Wire: j.Wire, Stages: curves.FirstLayers(w.Base)}
	if err := t.Contend(c.Context(), w, l.Micros, l.Methods); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := measureRounds(c, t, &j, f.rounds, f.steps); err != nil {
		return nil, err
	}
	machine, err := prepare.TrainingMachine(p)
	if err != nil {
		return nil, err
	}
	if err := t.Fill(c.Context(), machine, w.Simulated()); err != nil {
		return nil, err
	}
	return t, document.Write(curves.TimesPath(l.Job), func(out io.Writer) error { return cli.WriteJSON(out, t) })
}

// measureRounds measures every contender once a round, each in a process of its own that stands still
// while another trains.
func measureRounds(c *cobra.Command, t *curves.Times, j *job.Job, rounds, steps int) error {
	own, remove, err := openExperiment(c, j, steps)
	if err != nil {
		return err
	}
	defer remove()
	var commands []race.Command
	for _, one := range t.Contested {
		command, err := own.command(one.Name, one.Plan, j.ThreadsPerWorker)
		if err != nil {
			return err
		}
		commands = append(commands, command)
	}
	return own.rounds(c.Context(), commands, rounds, nil, func(at int, r *race.Rival) {
		one := t.Contested[at]
		one.StepS = append(one.StepS, r.StepS/float64(one.Batches()))
		one.Busy, one.PeakBytes = append(one.Busy, r.Busy), r.PeakBytes
	})
}
