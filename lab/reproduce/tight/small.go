package tight

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Small is a case shrunken until all of its plans can be looked at.
type Small struct {
	Layers  int `json:"layers"`
	Devices int `json:"devices"`
	Batch   int `json:"batch"`

	StepS  float64 `json:"step_s"` // of the plan of auto
	Plan   string  `json:"plan"`
	BoundS float64 `json:"bound_s"`
	Gap    float64 `json:"gap"` // of the step over the bound

	// BestS is the fastest plan. None is faster than FloorS; the two are the same where all of its rivals are simulated.
	BestS     float64 `json:"best_s"`
	Best      string  `json:"best"`
	FloorS    float64 `json:"floor_s"`
	Layouts   int     `json:"layouts"`         // stages on devices that may beat the plan of auto, by their work and links
	Simulated int     `json:"plans_simulated"` // of these
	AllDepths bool    `json:"all_depths"`      // under all depths, else under some and what betters them
	Whole     bool    `json:"whole"`           // none was left out before it was known what it takes at least

	Loose string `json:"loose"`
	Why   string `json:"why,omitempty"` // it is undecided
}

// What can be loose.
const (
	Proof     = "proof"
	Plan      = "plan"
	Both      = "both"
	Undecided = "undecided"
)

// alike is the part of a case's gap that a small case has at least, so that it says something of it.
const alike = 0.5

// size is that of a small case.
type size struct{ layers, devices int }

// sizes are tried one after the other; of plans with several stages on a worker there are more layers than stages then.
var sizes, chunkedSizes = []size{{8, 8}, {10, 16}}, []size{{10, 4}}

// shrunken is the smallest case whose gap is like a large one's, or else the last that is tried.
func shrunken(ctx context.Context, p *profile.Profile, c *cluster.Cluster, batch int, found *tune.Result,
	longest time.Duration) (*Small, error) {
	var small *Small
	gap := found.Best.Predicted.StepS/found.Proof.StepS - 1
	tried := sizes
	if severalStages(found.Best) {
		tried = chunkedSizes
	}
	for _, size := range tried {
		on := few(c, size.devices)
		part := float64(len(on.Devices)) / float64(len(c.Devices))
		merged, fewer, err := merge(p, c, size.layers, cutsOf(found.Best, found.Proof), part, batch)
		if err != nil {
			return nil, err
		}
		if small, err = ask(ctx, merged, on, fewer, longest); err != nil {
			return nil, err
		}
		if small.Gap >= alike*gap {
			break
		}
	}
	small.judge(gap)
	return small, nil
}

// ask searches for a plan of a small case, proves its bound, and looks at every plan.
func ask(ctx context.Context, p *profile.Profile, c *cluster.Cluster, batch int, longest time.Duration,
) (*Small, error) {
	found, err := tune.Search(ctx, tune.Request{Profile: p, Cluster: c, Batch: batch, Longest: longest})
	if err != nil {
		return nil, fmt.Errorf("bound: %s shrunken: %w", c.Name, err)
	}
	out := &Small{Layers: len(p.Layers), Devices: len(c.Devices), Batch: batch, StepS: found.Best.Predicted.StepS,
		Plan: found.Best.Layout(), BoundS: found.Proof.StepS}
	out.Gap = out.StepS/out.BoundS - 1
	e := &every{p: p, c: c, batch: batch, small: out, chunks: severalStages(found.Best)}
	if f, err := family.Lookup(found.Best.Schedule); err == nil {
		e.halves = f.Halves
	}
	out.BestS, out.Best = out.StepS, out.Plan
	return out, e.look(ctx)
}

// severalStages says whether a worker has several stages of a plan, of which only work is proven.
func severalStages(pl *plan.Plan) bool {
	f, err := family.Lookup(pl.Schedule)
	return err == nil && roles.SeveralStages(f)
}

// judge says which of plan and proof is loose. Of the gap of auto's plan over the bound, up to what every plan takes is
// the proof's fault, and from the best plan on it is the plan's.
func (s *Small) judge(gap float64) {
	whole := math.Log(s.StepS / s.BoundS)
	proof, better := math.Log(s.FloorS/s.BoundS)/whole, math.Log(s.StepS/s.BestS)/whole
	switch {
	case s.Gap < alike*gap:
		s.Loose = Undecided
		s.Why = fmt.Sprintf("with %d layers on %d devices the gap is %.1f %%, less than half", s.Layers, s.Devices,
			100*s.Gap)
	case better >= 2./3:
		s.Loose = Plan
	case s.Whole && proof >= 2./3:
		s.Loose = Proof
	case s.Whole && better >= 1./3 && proof >= 1./3:
		s.Loose = Both
	default:
		s.Loose = Undecided
		s.Why = fmt.Sprintf("with %d layers on %d devices there are more layouts than are simulated; the best so far is "+
			"%.1f %% over the bound", s.Layers, s.Devices, 100*(s.BestS/s.BoundS-1))
	}
}

// few is some devices of a cluster: where it has groups of two at least, of fewer groups, or of smaller ones.
func few(c *cluster.Cluster, devices int) *cluster.Cluster {
	small := *c
	small.Levels = nil
	for _, l := range c.Levels {
		if l.Size > 1 {
			small.Levels = append(small.Levels, l)
		}
	}
	small.Devices, small.Nodes = c.Devices[:devices], nil
	if len(small.Levels) == 1 {
		small.Levels[0].Size = devices
		return &small
	}
	inside := small.Levels[0].Size
	small.Levels[1].Size = max(2, devices/inside)
	small.Levels[0].Size = devices / small.Levels[1].Size
	return &small
}

// merge makes runs of layers one layer each, for a cluster with a part of the devices. Computations take so much less,
// so that a device has as much to compute of a batch; the batch is as much smaller, so that there are as many
// micro-batches to a stage; and so are parameters, so that sums take as large a part of a step. What a device holds of
// activations and of parameters is as much too. Runs end where stages of the plan and of the bound's path do, as far as
// there are so few.
func merge(p *profile.Profile, c *cluster.Cluster, layers int, cuts []int, part float64, batch int,
) (*profile.Profile, int, error) {
	device := c.Devices[0]
	batch = int(math.Round(part * float64(batch)))
	out := &profile.Profile{Version: profile.Version, Model: p.Model, ModelID: p.ModelID, Source: p.Source}
	runs := runsOf(p, device, layers, cuts)
	for k := range len(runs) - 1 {
		one := profile.Layer{Name: fmt.Sprint("run", k), Kind: "run", From: []int{k - 1}, TiedTo: -1}
		for l := runs[k]; l < runs[k+1]; l++ {
			one.ParameterBytes += int64(part * float64(p.Layers[l].ParameterBytes))
			one.UpdateS += part * p.Layers[l].UpdatesOn(device).UpdateS
			if owner := p.Layers[l].TiedTo; owner >= 0 && owner < runs[k] {
				one.TiedTo = runOf(runs, owner)
				one.TiedBytes += int64(part * float64(p.Layers[l].TiedBytes))
			}
		}
		for _, m := range plan.Divisors(batch) {
			costs, _, err := p.At(device, m)
			if err != nil {
				return nil, 0, fmt.Errorf("bound: %w", err)
			}
			cost := profile.Cost{Device: device, MicroBatch: m, OutputBytes: p.CutBytes(costs, runs[k+1]-1)}
			input, weight := 0.0, 0.0
			split := true
			for _, l := range costs[runs[k]:runs[k+1]] {
				cost.ForwardS += part * l.ForwardS
				cost.BackwardS += part * l.BackwardS
				cost.SavedBytes += l.SavedBytes
				cost.WorkspaceBytes = max(cost.WorkspaceBytes, l.WorkspaceBytes)
				if split = split && l.BackwardInputS != nil && l.BackwardWeightS != nil; split {
					input, weight = input+part**l.BackwardInputS, weight+part**l.BackwardWeightS
				}
			}
			if split {
				cost.BackwardInputS, cost.BackwardWeightS = &input, &weight
			}
			one.Costs = append(one.Costs, cost)
		}
		out.Layers = append(out.Layers, one)
	}
	return out, batch, nil
}

// runOf is the run that a layer is in.
func runOf(runs []int, layer int) int {
	i, found := slices.BinarySearch(runs, layer)
	if found {
		return i
	}
	return i - 1
}

// runsOf are the first layers of so many runs at most, and the number of layers. Of cuts, too many are joined where
// the least work comes together, and of too few the run with the most work is divided in halves.
func runsOf(p *profile.Profile, device string, layers int, cuts []int) []int {
	n := len(p.Layers)
	work := make([]float64, n+1)
	costs, _, err := p.At(device, 1)
	if err != nil {
		return nil
	}
	for l := range n {
		work[l+1] = work[l] + costs[l].ForwardS + costs[l].BackwardS
	}
	runs := append(slices.Clone(cuts), 0, n)
	slices.Sort(runs)
	runs = slices.Compact(runs)
	for len(runs)-1 > layers {
		least := 1
		for i := 1; i < len(runs)-1; i++ {
			if work[runs[i+1]]-work[runs[i-1]] < work[runs[least+1]]-work[runs[least-1]] {
				least = i
			}
		}
		runs = slices.Delete(runs, least, least+1)
	}
	for len(runs)-1 < min(layers, n) {
		most := 0
		for i := range len(runs) - 1 {
			if runs[i+1]-runs[i] > 1 && (runs[most+1]-runs[most] == 1 ||
				work[runs[i+1]]-work[runs[i]] > work[runs[most+1]]-work[runs[most]]) {
				most = i
			}
		}
		from, to := runs[most], runs[most+1]
		middle := from + 1
		for l := from + 1; l < to; l++ {
			if half := (work[from] + work[to]) / 2; math.Abs(work[l]-half) < math.Abs(work[middle]-half) {
				middle = l
			}
		}
		runs = slices.Insert(runs, most+1, middle)
	}
	return runs
}

// cutsOf are the first layers of a plan's stages and of a path's.
func cutsOf(pl *plan.Plan, proof bound.Proof) (cuts []int) {
	for _, st := range pl.Stages {
		cuts = append(cuts, st.FirstLayer)
	}
	for _, r := range proof.Path {
		cuts = append(cuts, r.FirstLayer)
	}
	slices.SortFunc(cuts, cmp.Compare)
	return slices.Compact(cuts)
}
