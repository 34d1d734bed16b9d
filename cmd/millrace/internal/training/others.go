package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/strictyaml"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
)

// These are rank 0's questions to the other processes.
const (
	askKept  = "kept"  // asks which job.yaml a process has of the run that is resumed
	askJob   = "job"   // asks which job a process was asked to run
	askOpen  = "open"  // asks a process to open what the job needs
	askReady = "ready" // asks a process to prepare for the run
	askBegin = "begin" // asks a process to begin the run with the next message
)

// together trains together with the other processes of a world.
func (t *training) together(w *launch.World) error {
	var j *job.Job
	var wrong error
	if t.peers.resumed == nil {
		j, wrong = t.jobWith(w, nil)
	}
	party, err := together.Meet(t.Context(), w, together.Build())
	if err != nil {
		return err
	}
	defer party.Close()
	t.peers.party, t.peers.each = party, w.Workers()/w.Size
	if w.Rank > 0 {
		return t.follow(w, j, wrong)
	}
	t.peers.led = party.Lead(t.Context())
	t.SetContext(t.peers.led.Context())
	if t.peers.resumed != nil {
		j, wrong = t.latestJob(w)
	}
	if err = wrong; err == nil {
		err = t.compare(j)
	}
	if err == nil {
		err = t.lead(w)
	}
	if t.peers.begun {
		return err
	}
	if cause := context.Cause(t.Context()); err != nil && cause != nil {
		err = cause
	}
	return errors.Join(err, t.peers.led.Dismiss(err))
}

// saidOnce shortens an error of rank 0's input in every process but rank 0. It does so before the run begins, and only
// if millrace launch has started the processes: rank 0 then prints the error in full on the same terminal.
func saidOnce(w *launch.World, err error) error {
	var said *setup.Error
	if w.Rank == 0 || os.Getenv(launch.CommandVar) == "" || cli.CodeOf(err) != cli.ExitBadInput ||
		!errors.As(err, &said) || said.Rank != 0 {
		return err
	}
	return cli.Exit(cli.ExitBadInput, fmt.Errorf("%s has refused its input, as its own line says", said.Name))
}

// jobWith returns the job of this process. `text` is the job.yaml of the resumed run; nil: the process reads its own.
func (t *training) jobWith(w *launch.World, text []byte) (*job.Job, error) {
	if r := t.peers.resumed; r != nil && text == nil && r.lacks != nil {
		return nil, cli.BadInput(r.lacks)
	}
	t.flags.Text = text
	j, err := t.flags.Job()
	if err == nil {
		err = t.forget(w, *j)
	}
	return j, err
}

// resumed is a run that is resumed with its own job.
type resumed struct {
	run   string // the run's folder
	lacks error  // why this host has no job of the run; nil: it has one
}

// kept is the job of a run, as a host has kept it. Only rank 0's host keeps the job, and rank 0 may have moved since
// then.
type kept struct {
	Text  []byte    // content of job.yaml; nil: the host has none
	Began time.Time // when the start that wrote it began
}

// keptIn returns the job in the folder of a run.
func keptIn(run string) (k kept, err error) {
	k.Text, err = document.Read(filepath.Join(run, folder.JobName), strictyaml.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, nil
	}
	if s, unread := folder.ReadStart(run); unread == nil {
		k.Began = s.Began
	}
	return k, err
}

// latestJob returns the job of the latest start of the resumed run, from whichever process has it. An earlier start may
// have been led by another host with other settings.
func (t *training) latestJob(w *launch.World) (*job.Job, error) {
	r := t.peers.resumed
	own, err := keptIn(r.run)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	all := make([]kept, w.Size)
	if err := t.peers.led.All(askKept, r.run, func(rank int) any { return &all[rank] }); err != nil {
		return nil, err
	}
	all[0] = own
	from, latest := 0, own
	for rank, one := range all {
		if one.Text != nil && (latest.Text == nil || one.Began.After(latest.Began)) {
			from, latest = rank, one
		}
	}
	if from > 0 {
		fmt.Fprintf(t.ErrOrStderr(), "millrace: the job is in %s of %s\n", t.flags.File, t.peers.party.Name(from))
	}
	return t.jobWith(w, latest.Text)
}

// asked is what a process was asked to run.
type asked struct {
	Job   claims // settings of the job
	Files claims
}

// compare refuses processes that were asked to run another job, or whose files of the job differ.
func (t *training) compare(j *job.Job) error {
	own, err := travelled(j.Keys())
	if err != nil {
		return err
	}
	files, theirs := filesOf(j), make([]asked, t.peers.party.World.Size)
	if err := t.peers.led.All(askJob, t.flags.Text, func(rank int) any { return &theirs[rank] }); err != nil {
		return err
	}
	for rank := 1; rank < len(theirs); rank++ {
		a, b := t.peers.party.Name(0), t.peers.party.Name(rank)
		asked := theirs[rank].Job.flat("", claims{})
		if err := differ(own, asked, a, b, "start all with the same flags and job file"); err != nil {
			return err
		}
		own, their := files.knownTo(theirs[rank].Files), theirs[rank].Files.knownTo(files)
		if err := differ(own, their, a, b, "give all the same file, or rank 0 alone"); err != nil {
			return err
		}
	}
	if len(t.peers.party.Differ) > 0 {
		t.peers.unlike = fmt.Sprintf("%s, as hosts differ: %s", prepare.NotPromised, strings.Join(t.peers.party.Differ, "; "))
		fmt.Fprintf(t.ErrOrStderr(), "millrace: %s\n", t.peers.unlike)
	}
	return nil
}

// openOthers has the other processes open what a job needs, and lock the run's folder. It refuses data that differs
// from this process's.
func (t *training) openOthers(j *job.Job, n *needs) error {
	if t.peers.led == nil {
		return nil
	}
	text, err := j.Text()
	if err != nil {
		return cli.BadInput(err)
	}
	what := opening{Job: text, Dry: t.dry, Start: t.ending.start}
	own, err := opened(j, n)
	if err == nil {
		own, err = travelled(own)
	}
	if err != nil {
		return err
	}
	theirs := make([]claims, t.peers.party.World.Size)
	if err := t.peers.led.All(askOpen, what, func(rank int) any { return &theirs[rank] }); err != nil {
		return err
	}
	for rank := 1; rank < len(theirs); rank++ {
		if err := differ(own, theirs[rank], t.peers.party.Name(0), t.peers.party.Name(rank),
			"give all the same"); err != nil {
			return err
		}
	}
	return t.holdOthers(j)
}

// opening describes what the other processes must open.
type opening struct {
	Job   string
	Dry   bool   // the run is a dry run, which writes nothing
	Start string // identifies this start of the run
}

// opened returns claims about what a process has opened for a job.
func opened(j *job.Job, n *needs) (claims, error) {
	c, err := dataOf(j, n.data, n.mark)
	if err == nil {
		c["the model "+n.model.Name] = n.model.ID()
	}
	return c, err
}

// placed records in the task where the workers of a plan are.
func (t *training) placed(k *task, p *prepare.Prepared) (err error) {
	if t.peers.led == nil {
		return nil
	}
	if k.Job, err = p.Job.Text(); err != nil {
		return cli.BadInput(err)
	}
	devices := p.Plan.Devices()
	for _, device := range devices {
		if w := t.peers.party.World; device >= w.Workers() {
			return cli.BadInput(fmt.Errorf("the plan has a worker %d, and there are %s", device, counted(w)))
		}
	}
	k.Workers = t.peers.survey.Places(devices)
	k.Seats = t.peers.survey.Seats(p.Job.Machine.ThreadsPerWorker)
	return nil
}

// hostsOf returns the host of each worker; nil for a single process.
func (t *training) hostsOf(k *task) (hosts []string) {
	for _, at := range k.Workers {
		hosts = append(hosts, t.peers.party.Places[at.Process].Host)
	}
	return hosts
}

// place tells a run where its workers are, and divides this host's cores among its processes.
func (t *training) place(c *run.Config, k *task, j *job.Job, links ...control.Link) {
	rank := t.peers.party.World.Rank
	c.Machine.World = &process.World{Rank: rank, Workers: k.Workers, Hosts: t.peers.party.Hosts(), Links: links}
	of, mine := make([]int, len(k.Workers)), 0
	for worker, at := range k.Workers {
		if of[worker] = at.Process; at.Process == rank {
			mine++
		}
	}
	c.Wire.Carriers, c.Machine.Cores = t.peers.party.Carriers(of, k.Streams), 0
	seat := k.Seats[rank]
	c.Machine.Place.Part, c.Machine.Place.Parts = seat.Part, seat.Parts
	c.Watch.ProfileS = k.watched(c.Watch.ProfileS)
	if seat.Cores < mine {
		c.Machine.Cores = seat.Cores
	}
}

// readyOthers has the other processes prepare for the run.
func (t *training) readyOthers(k *task) error {
	if t.peers.led == nil {
		return nil
	}
	return t.peers.led.All(askReady, k, nil)
}

// beginOthers starts the run in the other processes.
func (t *training) beginOthers(c *run.Config, k *task, j *job.Job) error {
	if t.peers.led == nil {
		return nil
	}
	if err := t.peers.led.All(askBegin, nil, nil); err != nil {
		return err
	}
	links, err := t.peers.led.Begin()
	if err != nil {
		return err
	}
	t.peers.begun = true
	t.place(c, k, j, links...)
	return nil
}

// follow answers rank 0's questions and runs this process's part of the run. It prints no result.
func (t *training) follow(w *launch.World, j *job.Job, wrong error) error {
	var own *needs
	var config run.Config
	handlers := hosts.Handlers(t.peers.party, t.ErrOrStderr())
	maps.Copy(handlers, map[string]setup.Handler{
		askKept: answering(func(_ context.Context, run string) (any, error) { return keptIn(run) }),
		askJob: answering(func(_ context.Context, text []byte) (any, error) {
			if t.peers.resumed != nil {
				j, wrong = t.jobWith(w, text)
			}
			if wrong != nil {
				return nil, wrong
			}
			return asked{j.Keys(), filesOf(j)}, nil
		}),
		askOpen: answering(func(_ context.Context, o opening) (any, error) {
			j, err := job.Parse(o.Job)
			if err != nil {
				return nil, err
			}
			if own, err = open(j, nil); err != nil {
				return nil, err
			}
			if !o.Dry {
				from, err := t.goesOnHere(j)
				if err != nil {
					return nil, err
				}
				if err := checkOut(j, w.RunID, from); err != nil {
					return nil, err
				}
				t.ending.out, t.ending.start = j.Output.Folder, o.Start // the folder on this host
			}
			return opened(j, own)
		}),
		askReady: func(_ context.Context, with json.RawMessage) (any, error) {
			var k task
			if err := json.Unmarshal(with, &k); err != nil {
				return nil, err
			}
			j, err := job.Parse(k.Job)
			if err != nil {
				return nil, err
			}
			config = k.config(j, own)
			if err := t.spread.opens(&config); err != nil {
				return nil, err
			}
			if err := t.meets(&config, j, own); err != nil {
				return nil, err
			}
			t.place(&config, &k, j)
			config.Checkpoint.Claim = func(arrange func() error) error {
				if err := t.claim(j, w.RunID, arrange); err != nil {
					return err
				}
				return dropError(filepath.Join(t.ending.out, folder.ErrorName))
			}
			return nil, nil
		},
		askBegin: func(context.Context, json.RawMessage) (any, error) {
			return nil, cli.FinishesItsStep(t.Command)
		},
	})
	maps.Copy(handlers, t.lookers())
	link, err := t.peers.party.Follow(t.Context(), handlers)
	if err != nil || link == nil {
		return err
	}
	config.Machine.World.Links = append(config.Machine.World.Links, link)
	slog.Debug("the run begins", "steps", config.Train.Steps)
	result, err := run.Train(t.Context(), config)
	if err != nil {
		return err
	}
	slog.Debug("the run has ended", "stopped", result.Stopped)
	if result.Stopped {
		return t.wasStopped()
	}
	return nil
}
