package plan

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/profile"
)

// Request is what every planner is asked: which plan for this model, on these
// devices, with this many samples a step?
type Request struct {
	Profile *profile.Profile
	Cluster *cluster.Cluster
	Batch   int // samples of one step over all devices
	// MicroBatch fixes the samples of one micro-batch; 0 leaves it to the planner.
	MicroBatch int
	// Formula is "paper" (also "") or "artifact": the published code's, where it differs.
	Formula string
	// Boundary is how stages send each other activations and gradients. Planners see the profile with the bytes that
	// it leaves (profile.Profile.Packed); what packing takes is for whoever simulates their plans.
	Boundary packing.Format
	// Runnable keeps to plans that package run executes, where the planner's settings do not say otherwise.
	Runnable bool
	// Set holds the planner's own settings by name, as in `--set overlap=max`.
	Set map[string]string
}

// Blank is a planner's synchronous plan for the request, in 1f1b order and without stages.
func (r Request) Blank(planner, replication string) *Plan {
	return &Plan{
		Version: Version, Model: r.Profile.Model, ModelID: r.Profile.ModelID, Cluster: r.Cluster.Name,
		Replication: replication, Schedule: "1f1b", Weights: "sync", Planner: planner,
	}
}

// SameTime is how much, relatively, sums of the same times in another order may differ.
const SameTime = 1e-9

// Planner is one way to find a plan.
type Planner struct {
	Name     string
	Paper    string // where it is described
	Artifact string // the published code that formula "artifact" follows; empty: there is none
	Settings []Setting
	// Averages: its stages are for pipelines side by side, each with weights of its own.
	Averages bool
	// Plan returns the planner's own best plan, with Objective in its own formula.
	// It stops early with ctx's error.
	Plan func(ctx context.Context, r Request) (*Plan, error)
}

var planners = registry.New[Planner]("planner")

// RegisterPlanner adds a planner, which is not asked about batches that CheckBatch refuses; called from init
// functions of this package's files.
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

// LookupPlanner finds a planner, or lists those that there are.
func LookupPlanner(name string) (Planner, error) {
	p, err := planners.Find(name)
	if err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	return p, nil
}
