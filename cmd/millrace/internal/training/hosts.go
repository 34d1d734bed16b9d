package training

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/report/folder"
)

// prepare profiles and plans a job, for this machine or for all hosts. It checks the rows of steps before it measures.
func (t *training) prepare(j *job.Job) (*prepare.Prepared, error) {
	p, err := prepare.PrepareOn(t.Command, j, true, func(p *prepare.Prepared) error {
		if err := prepare.CheckRows(j, t.from.steps()); err != nil {
			return err
		}
		if t.peers.led == nil && j.Machine.Cluster == "" {
			return p.Hardware(t.Command)
		}
		return t.hardware(p)
	})
	if err != nil {
		return nil, err
	}
	p.Plan.Why = append(p.Plan.Why, t.peers.noted...)
	return p, nil
}

// hardware determines the hosts, the model's costs on each host type, and the links between the hosts. Costs are read
// from the job's profile. If the job names none, they come from earlier measurements, and missing costs are measured.
// Links between processes are always measured, but a cluster file's links are used if the job names a file.
func (t *training) hardware(p *prepare.Prepared) (err error) {
	j, each := p.Job, t.peers.each
	if j.Machine.Wire != "" {
		return cli.BadInput(fmt.Errorf("--wire %s puts links between the workers of one process; those between processes, "+
			"or of --cluster, are there already: leave it out", j.Machine.Wire))
	}
	if t.peers.led == nil { // on this machine; the file may have more workers than are wanted
		if p.Cluster, err = prepare.DescribedCluster(t.Command, j); err != nil {
			return err
		}
		each = j.Machine.Workers
		p.Cluster = p.Cluster.WithCores(prepare.CoresOf(j), each) // all workers are in this process
	}
	crew := hosts.NewCrew(t.Context(), t.peers.party, t.peers.led, t.ErrOrStderr())
	if t.peers.survey, err = crew.Survey(each); err != nil {
		return err
	}
	var planned *cluster.Cluster // the cluster that a given plan is for
	if p.Plan != nil {
		if err := t.peers.survey.Has(j.Plan.File, p.Plan.Devices()); err != nil {
			return cli.BadInput(err)
		}
		if planned, err = p.Plan.For(); err == nil && planned != nil {
			err = t.peers.survey.Suits(planned)
		}
		if err != nil {
			return cli.BadInput(fmt.Errorf("the plan in %s is for other hosts: %w; plan for these, with --plan left out",
				j.Plan.File, err))
		}
	}
	if j.Machine.Cores > 0 {
		t.peers.survey.Limit(j.Machine.Cores * j.Machine.ThreadsPerWorker)
	}
	types := t.peers.survey.Types(j.Machine.ThreadsPerWorker)
	t.say(t.peers.survey.Describe(types))
	t.note(t.peers.survey.Crowded(j.Machine.ThreadsPerWorker))
	if j.Machine.Cluster != "" && p.Cluster == nil {
		if p.Cluster, err = cluster.Read(j.Machine.Cluster); err != nil {
			return cli.BadInput(err)
		}
	}
	if p.Cluster != nil {
		if err := t.peers.survey.Fits(p.Cluster); err != nil {
			return cli.BadInput(fmt.Errorf("%w; a run trains on the cores of its hosts, which %s describes: leave it out to "+
				"have them measured. For other devices: %s plan", err, j.Called("cluster"), cli.Called()))
		}
	}
	if j.Plan.Profile != "" {
		p.Profile, err = prepare.GivenProfile(j, p.Model)
	} else {
		p.Profile, err = crew.Profile(t.peers.survey, types, t.peers.survey.Called(types, p.Cluster), j, p.Sizes())
	}
	if err == nil && t.peers.led != nil {
		err = t.join(crew, p, types, planned)
	}
	if err == nil {
		p.Limit()
	}
	return err
}

// join measures the links between the processes. If no file describes a cluster, join makes one. It reports links that
// differ from those of a plan or a file.
func (t *training) join(crew *hosts.Crew, p *prepare.Prepared, types []hosts.Type, planned *cluster.Cluster) error {
	measured, err := crew.Links(t.peers.survey)
	if err != nil {
		return err
	}
	t.peers.streams = measured.Streams
	t.say(measured.Describe())
	for _, thought := range []*cluster.Cluster{planned, p.Cluster} {
		if thought != nil {
			t.note(measured.Unlike(t.peers.survey, thought))
		}
	}
	if p.Cluster == nil {
		p.Cluster, err = t.joined(measured, p, types)
	}
	return err
}

// note prints notes, and keeps them to be written into the plan.
func (t *training) note(all []string) {
	for _, text := range all {
		t.say(text + "\n")
	}
	t.peers.noted = append(t.peers.noted, all...)
}

// joined returns a cluster of the hosts with the links as measured now.
func (t *training) joined(measured *hosts.Measured, p *prepare.Prepared,
	types []hosts.Type) (*cluster.Cluster, error) {
	of := map[string]cluster.DeviceType{}
	for _, k := range types {
		of[k.Name] = cluster.DeviceType{}
		if !p.Profile.Covers(k.Name) {
			return nil, cli.BadInput(fmt.Errorf("the profile of %s has no costs on %s, which hosts here are; it has them on "+
				"%s: join one of each type, as in: millrace profile join %s=FILE", p.Model.Name, k.Name,
				strings.Join(p.Profile.DeviceTypes(), ", "), k.Name))
		}
	}
	return t.peers.survey.Cluster(p.Job.Machine.ThreadsPerWorker, of, measured.Between(prepare.Inside(p.Profile)))
}

// started returns the facts about this start for the run's folder: which engine computes, and on which hosts.
func (t *training) started(p *prepare.Prepared) folder.Start {
	var engines []string
	for _, device := range p.Profile.DeviceTypes() {
		if name := p.Profile.On(device).Engine; name != "" && !slices.Contains(engines, name) {
			engines = append(engines, name)
		}
	}
	s := folder.Start{Done: t.from.steps(), From: t.from.at(), Engine: strings.Join(engines, ", ")}
	if t.peers.survey == nil {
		own := prepare.Own()
		s.Hosts = []string{fmt.Sprintf("%s: %s, %s", cli.HostName(), cmp.Or(own.CPU, "a CPU"),
			terminal.Count(own.Cores(), "core"))}
		return s
	}
	for line := range strings.Lines(t.peers.survey.Describe(t.peers.survey.Types(p.Job.Machine.ThreadsPerWorker))) {
		_, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.Hosts = append(s.Hosts, said)
	}
	return s
}
