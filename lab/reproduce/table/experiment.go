// Package table holds the papers' tables beside what millrace answers.
//
// In: an experiment's rows. Out: a Table with the paper's value, ours, the difference, ablations, and how much agrees.
// Refused: names of no experiment, planners that are not registered, options that an experiment does not use.
package table

import (
	"context"
	"fmt"
	"maps"

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
	Charts []Chart  `json:"charts,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Tried is how many combinations of assumptions were switched, those of one and of several (see Tries).
	Tried    int            `json:"tried,omitempty"`
	combined map[string]int // of how many, where it is several
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

// Request is what a planner is asked, told those of the settings that it has.
func (o Options) Request(planner string, p *profile.Profile, c *cluster.Cluster, batch int) plan.Request {
	set := map[string]string{}
	for name, value := range o.Set {
		if has(planner, name) {
			set[name] = value
		}
	}
	return plan.Request{Profile: p, Cluster: c, Batch: batch, Formula: o.Formula, Set: set}
}

// With is o where planners are told a setting besides.
func (o Options) With(name, value string) Options {
	o.Set = maps.Clone(o.Set)
	if o.Set == nil {
		o.Set = map[string]string{}
	}
	o.Set[name] = value
	return o
}

// Experiment is one table or figure.
type Experiment struct {
	Name  string
	Title string
	uses  Uses
	run   func(ctx context.Context, o Options, t *Table) error
}

var experiments = registry.New[Experiment]("experiment")

// Register adds an experiment. Names begin with their paper.
func Register(name, title string, u Uses, run func(ctx context.Context, o Options, t *Table) error) {
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

// OfThePapers says whether an experiment is of one of the four papers.
func (e Experiment) OfThePapers() bool { return !e.uses.Others }

// Run computes the experiment. It stops early with ctx's error.
func (e Experiment) Run(ctx context.Context, o Options) (*Table, error) {
	if err := e.Check(o); err != nil {
		return nil, err
	}
	t := &Table{Name: e.Name, Title: e.Title}
	if err := e.run(ctx, o, t); err != nil {
		return nil, fmt.Errorf("reproduce: %s: %w", e.Name, err)
	}
	t.settle()
	return t, nil
}
