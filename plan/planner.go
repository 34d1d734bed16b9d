package plan

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/profile"
)

// Request asks a planner for a plan for a model, on given devices, with a given number of samples a step.
type Request struct {
	Profile *profile.Profile
	Cluster *cluster.Cluster
	Batch   int // samples of one step over all devices
	// MicroBatch fixes the samples of one micro-batch; with 0 the planner chooses.
	MicroBatch int
	// Formula is "paper" (also "") or "artifact", which follows the published code where it differs from the paper.
	Formula string
	// Boundary is the format of activations and gradients sent between stages. Planners see the profile with the packed
	// sizes (profile.Profile.Packed). Only the simulation of their plans counts the time of packing.
	Boundary packing.Format
	// Runnable restricts the search to plans that package run executes, unless the planner's settings say otherwise.
	Runnable bool
	// Set holds the planner's own settings by name, as in `--set overlap=max`.
	Set map[string]string
}

// Blank returns a synchronous plan of the planner for the request, in 1f1b order and without stages.
func (r Request) Blank(planner, replication string) *Plan {
	return &Plan{
		Version: Version, Model: r.Profile.Model, ModelID: r.Profile.ModelID, Cluster: r.Cluster.Name,
		Replication: replication, Schedule: "1f1b", Weights: "sync", Planner: planner,
	}
}

// SameTime is the relative difference that rounding may make between sums of the same times in different orders.
const SameTime = 1e-9

// Planner is one way to find a plan.
type Planner struct {
	Name     string
	Paper    string // the paper that describes it
	Artifact string // the published code that formula "artifact" follows; empty if there is none
	Settings []Setting
	// Averages means that the planner's stages are for pipelines side by side, each with its own weights.
	Averages bool
	// Plan returns the planner's own best plan, with Objective by its own formula. It stops early with ctx's error if
	// ctx ends.
	Plan func(ctx context.Context, r Request) (*Plan, error)
}

var planners = registry.New[Planner]("planner")

// RegisterPlanner adds a planner; call it from an init function. The planner gets no batches that CheckBatch refuses.
// It sees the profile with the packed sizes of Request.Boundary. If its plan has several stages, the plan gets that
// Boundary.
func RegisterPlanner(p Planner) {
	search := p.Plan
	p.Plan = func(ctx context.Context, r Request) (*Plan, error) {
		if err := CheckBatch(r.Batch); err != nil {
			return nil, fmt.Errorf("%w (planner %s)", err, p.Name)
		}
		r.Profile = r.Profile.Packed(r.Boundary)
		pl, err := search(ctx, r)
		if err == nil && len(pl.Stages) > 1 {
			pl.Boundary = r.Boundary
		}
		return pl, err
	}
	planners.Add(p.Name, p)
}

// Planners lists all registered planners by name.
func Planners() []Planner { return planners.All() }

// LookupPlanner finds a planner by name. Its error lists the existing ones.
func LookupPlanner(name string) (Planner, error) {
	p, err := planners.Find(name)
	if err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	return p, nil
}
