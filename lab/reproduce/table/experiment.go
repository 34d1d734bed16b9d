// Package table compares the papers' tables with millrace's results.
//
// Input: an experiment's rows. Output: a Table with the paper's value, ours, the difference, ablations, and how much
// agrees. Errors: unknown experiments, planners that are not registered, options that an experiment does not use.
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

// Table is a reproduced table or figure of a paper.
type Table struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Source string   `json:"source"` // where the paper's values are from
	Rows   []Row    `json:"rows"`
	Charts []Chart  `json:"charts,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Tried is the number of combinations of assumptions that were tried, including single ones (see Tries).
	Tried    int            `json:"tried,omitempty"`
	combined map[string]int // number of assumptions in each combination of several
}

// Options holds the options of an experiment.
type Options struct {
	// Profiles is a folder with the published profiles (lab/reproduce/bench/published.go); "" means analytic costs.
	// Workloads and variants without a published profile stay analytic.
	Profiles string
	// Formula and Set are passed to the planners. Formula is "paper" or "artifact", and Set has the planners' own
	// settings.
	Formula string
	Set     map[string]string
}

// Request returns a planner's request, with only the settings that the planner knows.
func (o Options) Request(planner string, p *profile.Profile, c *cluster.Cluster, batch int) plan.Request {
	set := map[string]string{}
	for name, value := range o.Set {
		if has(planner, name) {
			set[name] = value
		}
	}
	return plan.Request{Profile: p, Cluster: c, Batch: batch, Formula: o.Formula, Set: set}
}

// With returns the options with another setting for planners.
func (o Options) With(name, value string) Options {
	o.Set = maps.Clone(o.Set)
	if o.Set == nil {
		o.Set = map[string]string{}
	}
	o.Set[name] = value
	return o
}

// Experiment reproduces one table or figure.
type Experiment struct {
	Name  string
	Title string
	uses  Uses
	run   func(ctx context.Context, o Options, t *Table) error
}

var experiments = registry.New[Experiment]("experiment")

// Register adds an experiment. If the experiment belongs to a paper, its name begins with the paper's name.
func Register(name, title string, u Uses, run func(ctx context.Context, o Options, t *Table) error) {
	experiments.Add(name, Experiment{Name: name, Title: title, uses: u, run: run})
}

// Experiments lists the experiments by name.
func Experiments() []Experiment { return experiments.All() }

// Lookup finds an experiment by name. The error for an unknown name lists the existing ones.
func Lookup(name string) (Experiment, error) {
	e, err := experiments.Find(name)
	if err != nil {
		return e, fmt.Errorf("reproduce: %w", err)
	}
	return e, nil
}

// OfThePapers says whether an experiment belongs to one of the four papers.
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
