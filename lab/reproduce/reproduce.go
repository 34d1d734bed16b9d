// Package reproduce holds the papers' tables beside what millrace answers.
//
// In: the name of a table or figure. Out: a Table with the paper's value, ours, the
// difference and one line on why they differ. Ours is computed from layer descriptions,
// described devices, planners and the simulator; what a paper printed is read only to be
// shown beside it. Refused: names of no experiment, planners that are not registered, options
// that an experiment does not use. It trains nothing.
package reproduce

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// Table is a table or figure of a paper, reproduced.
type Table struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Source string   `json:"source"` // of the paper's values
	Rows   []Row    `json:"rows"`
	Notes  []string `json:"notes,omitempty"`
}

// Options of an experiment.
type Options struct {
	// Profiles is a folder with the published profiles (see published); "" takes analytic
	// costs. Workloads and variants that nobody published stay analytic.
	Profiles string
	// Formula and Set go to the planners: "paper" or "artifact", and their own settings.
	Formula string
	Set     map[string]string
}

// request is what a planner is asked, told those of the settings that it has.
func (o Options) request(planner string, p *profile.Profile, c *cluster.Cluster, batch int) plan.Request {
	set := map[string]string{}
	for name, value := range o.Set {
		if has(planner, name) {
			set[name] = value
		}
	}
	return plan.Request{Profile: p, Cluster: c, Batch: batch, Formula: o.Formula, Set: set}
}

// Experiment is one table or figure.
type Experiment struct {
	Name  string
	Title string
	uses  uses
	run   func(ctx context.Context, o Options, t *Table) error
}

var experiments = registry.New[Experiment]("experiment")

func register(name, title string, u uses, run func(ctx context.Context, o Options, t *Table) error) {
	experiments.Add(name, Experiment{Name: name, Title: title, uses: u, run: run})
}

// Experiments lists what can be reproduced, by name.
func Experiments() []Experiment { return experiments.All() }

// Lookup finds an experiment, or lists those that there are.
func Lookup(name string) (Experiment, error) {
	e, err := experiments.Find(name)
	if err != nil {
		return e, fmt.Errorf("reproduce: %w", err)
	}
	return e, nil
}

// Run computes the experiment. It stops early with ctx's error.
func (e Experiment) Run(ctx context.Context, o Options) (*Table, error) {
	if err := e.Check(o); err != nil {
		return nil, err
	}
	t := &Table{Name: e.Name, Title: e.Title}
	if err := e.run(ctx, o, t); err != nil {
		return nil, fmt.Errorf("reproduce: %s: %w", e.Name, err)
	}
	return t, nil
}
