package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/planning"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/trace"
)

// training is one call of the command train: what was asked for, and its progress. Its methods are the steps of train,
// from the flags to what the run leaves. Most of these steps concern several of its parts.
type training struct {
	*cobra.Command
	flags       prepare.JobFlags
	asJSON, dry bool
	from        *resumption
	spread      *spread  // the checkpoint that the run resumes from
	folder      *os.File // the job's folder; nil if it does not exist or is not locked here
	fellow      bool     // another process of the run has locked the folder
	peers       peers
	ending      ending
	dropped     dropped
}

// peers describes the processes of a run. The zero value is a single process.
type peers struct {
	party   *together.Party // nil: a single process
	each    int             // workers of each process
	led     *setup.Leader   // rank 0 asks the other processes through it; nil in other ranks and in a single process
	survey  *hosts.Survey   // all hosts
	noted   []string        // notes about the hosts for the plan's Why
	streams int             // connections between two workers, each way
	begun   bool            // the other processes have begun the run
	unlike  string          // differences between hosts that affect bits; empty: none
	resumed *resumed        // the run whose job the processes take; nil: each process was given a job
	members []bool          // by rank: whether the run may use the process's checkpoints; nil: those of all processes
}

// ending holds what error.json contains about a failed run besides the error.
type ending struct {
	out   string // the run's folder; empty until it is certain that this run may write there
	ran   bool   // the run has written to the folder
	start string // identifies this start of the run; rank 0 draws it
	steps *int   // steps done; nil: not known, or the run has not ended
	saved string // the last checkpoint
}

func TrainCommand() *cobra.Command {
	t := &training{peers: peers{streams: 1}}
	var each int
	c := &cobra.Command{
		Use: "train [JOB.yaml]", Short: "Profile, plan, check, simulate, train and report", Long: trainHelp,
		Example: `  millrace train --model gpt --data FILE.txt --workers 2 --batch 32 --steps 200 --out runs/gpt
  millrace train --model convnet --data fashion-mnist --batch 128 --steps 500 --eval-every 100
  millrace train --resume runs/gpt --steps 400`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: words.Each(words.JobFiles),
		RunE: func(c *cobra.Command, args []string) error {
			w, err := worldOf(c, each)
			if err != nil {
				return cli.BadInput(err)
			}
			if len(args) == 1 {
				t.flags.File = args[0]
			}
			flags := c.Flags()
			if t.flags.File == "" && flags.Changed("resume") && !flags.Changed("model") {
				if err := t.ofRun(flags.Lookup("resume").Value.String(), w); err != nil {
					return cli.BadInput(err)
				}
			}
			if n := w.Workers(); n > 0 {
				t.flags.Given = append(t.flags.Given, func(j *job.Job) error { return workersOf(j, w, n) })
			}
			return saidOnce(w, t.do(w))
		},
	}
	t.Command = c
	t.flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.ClusterOptions, job.TrainOptions)
	cli.More(c, trainMore)
	cli.JSON(c, &t.asJSON)
	cli.Formerly(c, map[string]string{"output": "out"})
	c.Flags().IntVar(&each, workersFlag, 1, "workers of each process, where there are several")
	c.Flags().BoolVar(&t.dry, "dry-run", false, "stop before the first step")
	return c
}

// ofRun takes over the job of the run that a checkpoint, or a folder of checkpoints, belongs to. A single process
// refuses a run whose folder holds no job. Several processes take the job from whichever of them has it, once they
// have met.
func (t *training) ofRun(resume string, w *launch.World) error {
	run, lacks := runOf(resume)
	if w.Size > 1 {
		t.peers.resumed = &resumed{run, lacks}
	} else if lacks != nil {
		return lacks
	}
	t.flags.File = filepath.Join(run, folder.JobName)
	whole := false // whether the rate's schedule ended at the last step, before flags changed the job
	t.flags.Given = slices.Insert(t.flags.Given, 0, func(j *job.Job) error {
		whole = j.Train.Rate.Total == j.Train.Steps
		return nil
	})
	t.flags.Given = append(t.flags.Given, func(j *job.Job) error {
		if !t.Flags().Changed("out") {
			j.Output.Folder = run
		}
		j.Output.Overwrite = j.Output.Overwrite && t.Flags().Changed("overwrite")
		if !t.Flags().Changed("replay") {
			j.Train.Replay = "" // only --replay makes the continuation replay an order
		}
		if whole {
			j.Train.Rate.Total = job.Auto // if a flag changes the steps, the rate's schedule still ends at the last one
			j.TakeBack("rate.total")
		}
		workers := w.Workers() // 0 without a launcher
		t.replan(j, workers > 0 && workers != j.Machine.Workers)
		return nil
	})
	return nil
}

// do trains as part of a world. If the run fails, it writes the reason into the run's folder.
func (t *training) do(w *launch.World) (err error) {
	defer func() { t.folder.Close() }()
	defer func() { t.spread.close() }()
	defer func() { err = t.leaveError(w.Rank, err) }()
	if w.Rank == 0 {
		t.ending.start = fmt.Sprintf("%016x", rand.Uint64())
	}
	if w.Size > 1 {
		return t.together(w)
	}
	return t.lead(w)
}

// lead trains as rank 0 or as a single process.
func (t *training) lead(world *launch.World) error {
	j, needs, err := t.asked(world)
	if err != nil {
		return err
	}
	servers, err := listen(j)
	if err != nil {
		return err
	}
	defer servers.close()
	defer servers.linger()
	servers.say(t.OutOrStdout(), t.asJSON) // printed first, because a program may read the address there
	if named := needs.data.Named(); named != "" {
		t.say("classes: " + named + "\n")
	}
	t.say(t.from.explain(j) + t.from.reread(needs.mark) + t.dropped.explain())
	u, err := t.planned(j, needs)
	if err != nil {
		return err
	}
	if t.from.at() == "" {
		t.say("optimizer: " + j.Learning(u.p.Plan.Together()) + "\n")
	}
	if !t.asJSON {
		rest := "all are in plan.json of the run's folder"
		if t.dry { // a dry run writes no folder
			rest = cli.Called() + " plan --explain has all"
		}
		planning.Explain(t.OutOrStdout(), u.p, rest)
	}
	simulated, err := prepare.CheckAndSimulate(u.p)
	if err != nil {
		return err
	}
	if t.dry {
		t.say("nothing was trained, as --dry-run asks\n")
		return nil
	}
	w, err := t.begins(world, u, servers, simulated)
	if err != nil {
		return err
	}
	result, err := run.Train(t.Context(), u.config)
	if result != nil {
		t.ending.ended(w.begun, result.Steps, cmp.Or(result.Checkpoint, t.from.at()))
	}
	return t.concluded(world, w, result, err)
}

// asked returns the job to run, with everything it needs opened. Except in a dry run, the folder is locked if it
// exists. The other processes have received the job.
func (t *training) asked(world *launch.World) (*job.Job, *needs, error) {
	t.flags.Given = append(t.flags.Given, func(j *job.Job) (err error) {
		if nameOut(j); !t.dry { // lock the folder before its checkpoints are read: another run may add some
			t.folder, err = holdFolder(j.Output.Folder)
		}
		switch {
		case err != nil:
		case world.StartedBefore():
			err = t.goOn(j, world.RunID)
		default:
			err = t.forget(world, *j)
		}
		if err == nil {
			t.from, err = t.takeUp(j)
		}
		return err
	})
	j, err := t.flags.Job()
	if err != nil {
		return nil, nil, remedied(err)
	}
	if t.peers.led != nil && j.Machine.Wire != "" {
		return nil, nil, cli.BadInput(fmt.Errorf("--wire %s: it brakes the workers of one process, and these are of "+
			"several; leave it out", j.Machine.Wire))
	}
	needs, err := open(j, t.from)
	if err != nil {
		return nil, nil, err
	}
	if err := t.openOthers(j, needs); err != nil {
		return nil, nil, err
	}
	if !t.dry {
		if err := checkOut(j, world.RunID, t.from); err != nil {
			return nil, nil, err
		}
		t.ending.out, t.ending.saved = j.Output.Folder, t.from.at()
	}
	return j, needs, nil
}

// begins has all processes prepare, locks the run's folder, and begins the run in the other processes. The returned
// runDir writes its first files when the run calls its method begin.
func (t *training) begins(world *launch.World, u *undertaking, servers *servers, simulated *trace.Timeline) (*runDir,
	error) {
	if err := t.readyOthers(u.task); err != nil {
		return nil, err
	}
	if err := cli.FinishesItsStep(t.Command); err != nil {
		return nil, err
	}
	out := u.job.Output.Folder
	if t.folder == nil {
		var err error
		if t.folder, err = TakeFolder(out); err != nil {
			return nil, faultOf(err, "")
		}
	}
	cli.ReportsTo(out)
	w, err := newRun(u.p, t.hostsOf(u.task), simulated, t.from, servers, &u.config)
	if err != nil {
		return nil, err
	}
	w.run, w.start = world.RunID, t.started(u.p)
	u.config.Hooks, u.config.Begin, u.config.Watch.ProfileS = w.hooks(), w.begin, u.p.Plan.Predicted.BusyS
	return w, t.beginOthers(&u.config, u.task, u.job)
}

// concluded finishes the run's folder, and prints how the run ended or why it failed.
func (t *training) concluded(world *launch.World, w *runDir, result *run.Result, err error) error {
	if !w.begun {
		return faultOf(w.unreplaced(errors.Join(err, w.close())), t.from.at())
	}
	if err != nil { // error.json is written first, because the report takes long; if error.json fails, do tries again
		_ = t.leaveError(world.Rank, faultOf(w.unreplaced(err), t.ending.saved))
	}
	if lostOf(err) != nil { // all processes must end within ten seconds after a loss, and most of that time is over
		inTime(cli.StopGrace, func() { _, _ = w.finish(result, err) })
		return faultOf(w.unreplaced(err), cmp.Or(result.Checkpoint, t.from.at()))
	}
	in, writing := w.finish(result, err)
	if !isFull(err) { // a full disk makes every write fail: `writing` would add nothing
		err = errors.Join(err, writing)
	}
	if err != nil {
		return faultOf(w.unreplaced(err), cmp.Or(result.Checkpoint, t.from.at()))
	}
	switch {
	case t.asJSON:
		var outcome Outcome
		if outcome, err = w.outcome(in, result); err == nil {
			err = cli.WriteJSON(t.OutOrStdout(), outcome)
		}
	case result.Stopped:
		w.printStopped(t.OutOrStdout(), result, world.Size == 1 || launchLine() != nil)
	default:
		err = w.print(t.OutOrStdout(), in, result)
	}
	if result.Stopped {
		return t.wasStopped()
	}
	return err
}

// say prints text for people, in lines that fit.
func (t *training) say(text string) {
	if text == "" || t.asJSON {
		return
	}
	s := terminal.Of(t.OutOrStdout())
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		fmt.Fprint(t.OutOrStdout(), s.Wrap("", "  ", line))
	}
}

// changedFlags returns the names of the flags on the command line.
func (t *training) changedFlags() (names []string) {
	t.Flags().Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// wasStopped returns the error of a stopped run: a signal reached this process, or another process.
func (t *training) wasStopped() error {
	if err := context.Cause(t.Context()); err != nil {
		return err
	}
	return cli.Exit(cli.ExitStopped, errors.New("another process of the run was told to stop; its step is done "+
		"and saved"))
}
