package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/process"
)

// What rank 0 asks the others for.
const (
	askJob   = "job"   // what they were asked for
	askOpen  = "open"  // to open what the job needs
	askReady = "ready" // to be ready for the run
)

// together trains with the other processes of a world.
func (t *training) together(w *launch.World) error {
	t.flags.Given = append(t.flags.Given, func(j *job.Job) error { return workersOf(j, w.Size) })
	asked, wrong := t.flags.Job()
	party, err := together.Meet(t.Context(), w, together.Build())
	if err != nil {
		return err
	}
	defer party.Close()
	t.party = party
	if w.Rank > 0 {
		return t.follow(asked, wrong)
	}
	t.others = party.Lead(t.Context())
	t.SetContext(t.others.Context())
	if err = wrong; err == nil {
		err = t.compare(asked)
	}
	if err == nil {
		err = t.lead()
	}
	if t.begun {
		return together.Exit(err)
	}
	if cause := context.Cause(t.Context()); err != nil && cause != nil {
		err = cause
	}
	return errors.Join(together.Exit(err), t.others.Dismiss(err))
}

// workersOf gives a job a worker for each process, and refuses another number.
func workersOf(j *job.Job, workers int) error {
	if j.Given("workers") && j.Workers != workers {
		return fmt.Errorf("--workers is %d, and there are %d processes with a worker each; leave it out", j.Workers, workers)
	}
	j.Workers = workers
	j.Give("workers")
	return nil
}

// compare refuses others that were asked for another job.
func (t *training) compare(asked *job.Job) error {
	own, err := plain(asked)
	if err != nil {
		return err
	}
	theirs := make([]map[string]any, t.party.World.Size)
	if err := t.others.All(askJob, nil, func(rank int) any { return &theirs[rank] }); err != nil {
		return err
	}
	for rank := 1; rank < len(theirs); rank++ {
		keys := maps.Clone(own)
		maps.Copy(keys, theirs[rank])
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if a, b := own[key], theirs[rank][key]; !reflect.DeepEqual(a, b) {
				return cli.BadInput(fmt.Errorf("%s is %v for %s and %v for %s: start all with the same flags", key, shown(a),
					t.party.Name(0), shown(b), t.party.Name(rank)))
			}
		}
	}
	return nil
}

// plain is the settings of a job as they are when they have travelled.
func plain(j *job.Job) (map[string]any, error) {
	text, err := json.Marshal(j.Keys())
	if err != nil {
		return nil, err
	}
	var keys map[string]any
	return keys, json.Unmarshal(text, &keys)
}

// shown is a setting in words.
func shown(value any) any {
	if value == nil {
		return "left out"
	}
	return value
}

// openOthers has the others open what a job needs.
func (t *training) openOthers(j *job.Job) error {
	if t.others == nil {
		return nil
	}
	text, err := j.Text()
	if err != nil {
		return cli.BadInput(err)
	}
	return t.others.All(askOpen, text, nil)
}

// placed says where the workers of a plan are.
func (t *training) placed(k *task, p *prepare.Prepared) (err error) {
	if t.others == nil {
		return nil
	}
	if k.Job, err = p.Job.Text(); err != nil {
		return cli.BadInput(err)
	}
	size := t.party.World.Size
	for _, device := range p.Plan.Devices() {
		if device >= size {
			return cli.BadInput(fmt.Errorf("the plan has a worker %d; there are %d processes with a worker each", device, size))
		}
		k.Workers = append(k.Workers, process.Location{Host: t.party.Places[device].Host, Process: device})
	}
	k.Cores = 0
	return nil
}

// readyOthers has the others be ready for the run.
func (t *training) readyOthers(k *task) error {
	if t.others == nil {
		return nil
	}
	return t.others.All(askReady, k, nil)
}

// beginOthers has the run begin everywhere.
func (t *training) beginOthers(c *run.Config, k *task) error {
	if t.others == nil {
		return nil
	}
	links, err := t.others.Begin()
	if err != nil {
		return err
	}
	t.begun = true
	c.World = &process.World{Workers: k.Workers, Links: links}
	c.Carriers = t.party.Carriers(ranksOf(k.Workers))
	return nil
}

func ranksOf(workers []process.Location) []int {
	var ranks []int
	for _, at := range workers {
		ranks = append(ranks, at.Process)
	}
	return ranks
}

// follow does what rank 0 asks, and its part of the run. It prints nothing.
func (t *training) follow(asked *job.Job, wrong error) error {
	var own *needs
	var config run.Config
	link, err := t.party.Follow(t.Context(), map[string]setup.Handler{
		askJob: func(context.Context, json.RawMessage) (any, error) {
			if wrong != nil {
				return nil, wrong
			}
			return asked.Keys(), nil
		},
		askOpen: func(_ context.Context, with json.RawMessage) (any, error) {
			j, err := jobOf(with)
			if err == nil {
				own, err = open(j, nil)
			}
			return nil, err
		},
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
			config.World = &process.World{Rank: t.party.World.Rank, Workers: k.Workers}
			config.Carriers = t.party.Carriers(ranksOf(k.Workers))
			return nil, nil
		},
	})
	if err != nil || link == nil {
		return err
	}
	config.World.Links = append(config.World.Links, link)
	if err := cli.FinishesItsStep(t.Command); err != nil {
		return errors.Join(err, link.Close())
	}
	result, err := run.Train(t.Context(), config)
	if err != nil {
		return together.Exit(err)
	}
	if result.Stopped {
		return t.wasStopped()
	}
	return nil
}

// jobOf is the job in a question.
func jobOf(with json.RawMessage) (*job.Job, error) {
	var text string
	if err := json.Unmarshal(with, &text); err != nil {
		return nil, err
	}
	return job.Parse(text)
}
