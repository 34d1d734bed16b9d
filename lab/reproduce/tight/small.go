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

// Small holds the results for a small version of a case, which has few enough layouts to list them all.
type Small struct {
	Layers  int   `json:"layers"`
	Devices int   `json:"devices"`
	Groups  int   `json:"groups,omitempty"` // number of groups of devices
	Batch   int   `json:"batch"`
	First   []int `json:"first_layers,omitempty"` // first layer of the model in each layer of the small case

	StepS  float64 `json:"step_s"` // step of auto's plan
	Plan   string  `json:"plan"`
	BoundS float64 `json:"bound_s"`
	Gap    float64 `json:"gap"` // StepS / BoundS - 1

	// BestS is the step of the fastest plan that was found. If Whole is true, no plan is faster than FloorS. FloorS is
	// the lower of two numbers: BestS, and a lower bound of the plans that were not tried. These plans have other
	// layouts, other depths of a layout, or recompute in only some stages. If the search looked only for plans below a
	// step (every.enough), FloorS is at most that step.
	BestS     float64 `json:"best_s"`
	Best      string  `json:"best"`
	FloorS    float64 `json:"floor_s"`
	Layouts   int     `json:"layouts"`         // layouts whose lower bound is below every.below
	Simulated int     `json:"plans_simulated"` // simulated plans
	AllDepths bool    `json:"all_depths"`      // no limit made the search skip depths of a listed layout
	Whole     bool    `json:"whole"`           // the list of layouts is complete

	Loose string `json:"loose"`
	Why   string `json:"why,omitempty"` // reason why Loose is undecided
}

// The values of Small.Loose.
const (
	Proof     = "proof"
	Plan      = "plan"
	Both      = "both"
	Undecided = "undecided"
)

// alike is the least gap of a small case, as a fraction of the large case's gap. With a smaller gap, the small case is
// undecided.
const alike = 0.5

// size is the size of a small case. `groups` is the largest number of groups that its devices may form. `batch` is the
// number of samples. If `batch` is 0, the number of samples is in proportion to the number of devices.
type size struct{ layers, devices, groups, batch int }

// sizes lists the small cases that are tried in turn. chunkedSizes is the list for plans with several stages on a
// worker; its cases have more layers than stages. With fewer samples there are fewer depths to try.
var sizes = []size{{8, 8, 2, 0}, {8, 8, 4, 0}, {6, 8, 2, 0}, {10, 8, 4, 0}, {8, 8, 2, 16}, {8, 8, 4, 16}, {6, 8, 4, 16},
	{10, 8, 4, 16}, {8, 8, 4, 8}, {8, 12, 4, 0}, {8, 12, 4, 12}, {6, 16, 4, 0}, {8, 16, 4, 0}, {8, 16, 4, 16}}
var chunkedSizes = []size{{10, 4, 2, 0}, {8, 2, 2, 0}, {12, 4, 2, 0}, {8, 4, 2, 0}, {10, 4, 2, 8}}

// large is a case whose gap is large, and for which small cases are made.
type large struct {
	p       *profile.Profile
	c       *cluster.Cluster
	batch   int
	found   *tune.Result
	gap     float64 // of the plan over the bound
	longest time.Duration
}

// shrunken tries the small cases of a list of sizes in turn, and returns the first that decides what is loose. If none
// does, it returns the case that narrowed finds. If narrowed finds none either, it returns the small case with the
// greatest gap. A plan with several stages on a worker is not narrowed.
func (l *large) shrunken(ctx context.Context) (*Small, error) {
	several := severalStages(l.found.Best)
	tried := sizes
	if several {
		tried = chunkedSizes
	}
	cuts := cutsOf(l.found.Best, l.found.Proof)
	var best *Small
	known := map[string]bool{}
	for _, size := range tried {
		on := few(l.c, size.devices, size.groups)
		batch := cmp.Or(size.batch, int(math.Round(float64(l.batch*len(on.Devices))/float64(len(l.c.Devices)))))
		key := fmt.Sprint(size.layers, on.Levels, batch)
		if known[key] {
			continue
		}
		known[key] = true
		e, err := l.like(ctx, on, batch, runsOf(l.p, l.c.Devices[0], size.layers, cuts))
		if err != nil {
			return nil, err
		}
		small := e.small
		if small.Gap >= alike*l.gap {
			if err := e.look(ctx); err != nil {
				return nil, err
			}
		}
		if small.judge(l.gap); small.Loose != Undecided {
			return small, nil
		}
		if best == nil || small.Gap > best.Gap {
			best = small
		}
	}
	if several {
		return best, nil
	}
	small, err := l.narrowed(ctx, cuts)
	if err != nil || small != nil {
		return small, err
	}
	return best, nil
}

// like makes a small case, searches for its plan, and proves its bound. The case has the devices of `on`, the batch,
// and one layer for each run of layers. The method `look` of the result looks for the best plan.
func (l *large) like(ctx context.Context, on *cluster.Cluster, batch int, runs []int) (*every, error) {
	part := float64(len(on.Devices)) / float64(len(l.c.Devices))
	p, err := merge(l.p, l.c.Devices[0], runs, part, float64(batch)/float64(l.batch), batch)
	if err != nil {
		return nil, err
	}
	found, err := tune.Search(ctx, tune.Request{Profile: p, Cluster: on, Batch: batch, Longest: l.longest})
	if err != nil {
		return nil, fmt.Errorf("bound: %s shrunken: %w", on.Name, err)
	}
	if found.LowestS <= 0 {
		return nil, fmt.Errorf("bound: %s shrunken: nothing is proven of plans like %s", on.Name, found.Best.Layout())
	}
	out := &Small{Layers: len(p.Layers), Devices: len(on.Devices), Batch: batch, First: runs[:len(runs)-1],
		StepS: found.Best.Predicted.StepS, Plan: found.Best.Layout(), BoundS: found.Proof.StepS}
	out.Gap = out.StepS/out.BoundS - 1
	out.BestS, out.Best, out.FloorS = out.StepS, out.Plan, out.BoundS
	e := &every{p: p, c: on, batch: batch, small: out, chunks: severalStages(found.Best), enough: out.enough()}
	if f, err := family.Lookup(found.Best.Schedule); err == nil {
		e.halves = f.Halves
	}
	if e.prepare(); e.groups > 1 {
		out.Groups = e.groups
	}
	return e, nil
}

// severalStages reports whether a plan has several stages on a worker. Such plans are bounded only by their work.
func severalStages(pl *plan.Plan) bool {
	f, err := family.Lookup(pl.Schedule)
	return err == nil && roles.SeveralStages(f)
}

// judge sets Loose, and also Why if Loose is undecided. gap is the gap of the large case.
func (s *Small) judge(gap float64) {
	if s.Loose, s.Why = s.verdict(), ""; s.Gap < alike*gap {
		s.Loose = Undecided
	}
	switch {
	case s.Loose != Undecided:
	case s.Gap < alike*gap:
		s.Why = fmt.Sprintf("with %d layers on %d devices the gap is %.1f %%, less than half", s.Layers, s.Devices,
			100*s.Gap)
	default:
		s.Why = fmt.Sprintf("with %d layers on %d devices there are more plans than are simulated; the best so far is "+
			"%.1f %% over the bound", s.Layers, s.Devices, 100*(s.BestS/s.BoundS-1))
	}
}

// enough returns the step that FloorS must reach for the verdict Proof. Plans that are slower than that do not change
// the verdict.
func (s *Small) enough() float64 { return s.BoundS * math.Pow(s.StepS/s.BoundS, 2./3) }

// verdict says what is loose in the small case. It compares the steps on a logarithmic scale from the bound to auto's
// plan. The part below FloorS is the proof's fault, and the part above BestS is the plan's fault.
func (s *Small) verdict() string {
	whole := math.Log(s.StepS / s.BoundS)
	proof, better := math.Log(max(s.FloorS, s.BoundS)/s.BoundS)/whole, math.Log(s.StepS/s.BestS)/whole
	switch {
	case better >= 2./3:
		return Plan
	case s.Whole && proof >= 2./3*(1-plan.SameTime):
		return Proof
	case s.Whole && better >= 1./3 && proof >= 1./3:
		return Both
	}
	return Undecided
}

// few returns a cluster of the first devices. If the cluster has two levels, the result has at most `groups` groups.
// The devices are divided evenly among these groups.
func few(c *cluster.Cluster, devices, groups int) *cluster.Cluster {
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
	small.Levels[1].Size = min(groups, small.Levels[1].Size)
	small.Levels[0].Size = devices / small.Levels[1].Size
	return &small
}

// merge joins runs of layers into one layer each, for a smaller cluster and a smaller batch. `part` is the fraction of
// the devices that remain. `samples` is the fraction of the batch's samples that remain. merge multiplies computing
// times by `part`, so each device computes as long as before for a sample. It multiplies parameters and updates by
// `samples`, so all-reduces take the same part of a step as before. It does not change the bytes that a sample saves:
// there are fewer stages, so fewer micro-batches are in flight.
func merge(p *profile.Profile, device string, runs []int, part, samples float64, batch int) (*profile.Profile, error) {
	out := &profile.Profile{Version: profile.Version, Model: p.Model, ModelID: p.ModelID, Source: p.Source}
	for k := range len(runs) - 1 {
		one := profile.Layer{Name: fmt.Sprint("run", k), Kind: "run", From: []int{k - 1}, TiedTo: -1}
		for l := runs[k]; l < runs[k+1]; l++ {
			one.ParameterBytes += int64(samples * float64(p.Layers[l].ParameterBytes))
			one.UpdateS += samples * p.Layers[l].UpdatesOn(device).UpdateS
			if owner := p.Layers[l].TiedTo; owner >= 0 && owner < runs[k] {
				one.TiedTo = runOf(runs, owner)
				one.TiedBytes += int64(samples * float64(p.Layers[l].TiedBytes))
			}
		}
		for _, m := range plan.Divisors(batch) {
			costs, _, err := p.At(device, m)
			if err != nil {
				return nil, fmt.Errorf("bound: %w", err)
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
	return out, nil
}

// runOf returns the index of the run that contains a layer.
func runOf(runs []int, layer int) int {
	i, found := slices.BinarySearch(runs, layer)
	if found {
		return i
	}
	return i - 1
}

// runsOf returns the first layer of each run, followed by the number of layers. It makes `layers` runs, or one run for
// each layer if there are fewer. A run begins at each cut, unless there are too many cuts. With too many cuts, runsOf
// joins the two neighbouring runs that have the least work together, until there are few enough. With too few cuts, it
// halves the run with the most work.
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

// cutsOf returns the first layers of the stages of a plan and of a proof's path.
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
