package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
)

// MemorySplit divides a device's peak memory by its use.
type MemorySplit struct {
	Device int    `json:"device"`
	Type   string `json:"type"`
	Stages []int  `json:"stages"`
	// WeightBytes is the bytes of parameters and batch-norm statistics. If pipelines run side by side, it is the sum
	// over all pipelines and the reference.
	WeightBytes  int64 `json:"weight_bytes"`
	FrozenBytes  int64 `json:"frozen_bytes,omitempty"` // frozen parameters and constants, which never change
	VersionBytes int64 `json:"version_bytes"`          // older weights that micro-batches in flight still need
	// GradientBytes is the gradients at the peak. With few micro-batches that may be before the first backward has
	// made any. Those that an operator makes at the peak count as buffers.
	GradientBytes   int64 `json:"gradient_bytes"`
	OptimizerBytes  int64 `json:"optimizer_bytes"`
	ActivationBytes int64 `json:"activation_bytes"` // saved and received for micro-batches in flight
	// BufferBytes is everything else: messages in flight, and what an operator needs while it runs.
	BufferBytes    int64   `json:"buffer_bytes"`
	PeakBytes      int64   `json:"peak_bytes"`
	NeedsBytes     int64   `json:"needs_bytes"` // plan.Predicted.Needs, to compare with LimitBytes
	LimitBytes     int64   `json:"limit_bytes"` // 0 means none
	MicrosInFlight int     `json:"micros_in_flight"`
	BusyS          float64 `json:"busy_s"`
}

// Lever is a change of the hardware and its effect.
type Lever struct {
	Change string  `json:"change"`
	StepS  float64 `json:"step_s"`
	Gain   float64 `json:"gain"` // relative gain of samples per second: 0.5 means 50 % more
}

// Explanation says why a plan is as fast as it is.
type Explanation struct {
	Memory     []MemorySplit `json:"memory"`
	Bottleneck string        `json:"bottleneck"`
	Levers     []Lever       `json:"levers,omitempty"` // the largest gain first
	// LeversCut says that some searches for better hardware ended early for lack of time. With more time they might
	// find better plans.
	LeversCut bool `json:"levers_cut,omitempty"`
	// LeversLeft are the changes that were not tried, and LeversLeftWhy says why.
	LeversLeft    []string `json:"levers_left,omitempty"`
	LeversLeftWhy string   `json:"levers_left_why,omitempty"`
	// Step is the simulation of the plan's first step, or of a stream's first minibatches. It is nil if the simulation
	// is too large to draw.
	Step *trace.Timeline `json:"-"`
}

// Explain analyses a plan by simulating it again, also on better hardware. pl.Predicted must be set.
func Explain(ctx context.Context, r Request, pl *plan.Plan) (*Explanation, error) {
	return explain(ctx, r, pl, nil, nil)
}

// Explain analyses the best plan. For each lever it makes a short search on the better hardware. Together these
// searches may take as long as one search. They also end at ctx's deadline; at most one of them ends later. Such a
// search may find a faster plan for this hardware too. Then Best and Rivals change.
func (found *Result) Explain(ctx context.Context) (*Explanation, error) {
	s := found.search
	ctx, cancel := context.WithTimeout(ctx, s.limit())
	defer cancel()
	known := map[string]float64{}
	for again := 0; ; again++ {
		out, err := explain(ctx, s.Request, found.Best, s, known)
		if err != nil || s.top.plan == found.Best || again == mostAgain {
			return out, err
		}
		next, err := s.result()
		if err != nil {
			return nil, err
		}
		*found = *next
	}
}

// explain implements both functions named Explain. If `s` is not nil, explain searches for a better plan with each
// lever; otherwise it keeps the plan. The map `known` has the step times that searches of earlier calls found, by the
// change of the hardware. explain adds those that it finds.
func explain(ctx context.Context, r Request, pl *plan.Plan, s *search, known map[string]float64) (*Explanation, error) {
	if pl.Predicted == nil {
		return nil, errors.New("tune: the plan is not predicted; simulate it first")
	}
	costs, err := sim.CostsOf(r.Profile, r.Cluster, pl)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Memory: memorySplits(r.Cluster, pl, &costs)}
	out.Bottleneck = bottleneck(r.Cluster, pl, &costs)
	out.levers(ctx, r, pl, s, known)
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	out.Step, err = firstStep(r, pl, costs)
	return out, err
}

func memorySplits(c *cluster.Cluster, pl *plan.Plan, costs *sim.Costs) []MemorySplit {
	policy, models := schedule.Policy(pl.Weights), int64(pl.Together())
	older := olderVersions(pl)
	var out []MemorySplit
	for i, d := range pl.Devices() {
		m := MemorySplit{
			Device: d, Type: c.Devices[d], LimitBytes: c.MemoryBytes(d),
			PeakBytes: pl.Predicted.MemoryBytes[i], NeedsBytes: pl.Predicted.Needs()[i],
			MicrosInFlight: pl.Predicted.PeakActivations[i], BusyS: pl.Predicted.BusyS[i],
		}
		each := int64(0)
		for s, st := range pl.Stages {
			k := slices.Index(st.Devices, d)
			if k < 0 {
				continue
			}
			m.Stages = append(m.Stages, s)
			cost := costs.Stages[s][min(k, len(costs.Stages[s])-1)]
			if policy.Served() && k < len(st.Devices)-1 { // only the last device, the server, has the optimizer
				m.GradientBytes += cost.ParameterBytes
				m.FrozenBytes += cost.FrozenBytes
				m.WeightBytes += cost.ReferenceBytes
				each += cost.SavedBytes + cost.InputBytes
				continue
			}
			m.GradientBytes += models * cost.ParameterBytes
			m.OptimizerBytes += models * cost.StateBytes
			m.FrozenBytes += models * cost.FrozenBytes
			m.WeightBytes += models * (cost.FixedBytes - cost.FrozenBytes - cost.StateBytes)
			if models > 1 {
				m.WeightBytes += cost.ReferenceBytes
				if pl.Elastic.Besides() { // the copy that the reference's thread works on
					m.WeightBytes += cost.ReferenceBytes
				}
				m.FrozenBytes += cost.FrozenBytes
			}
			each += cost.SavedBytes + cost.InputBytes
			m.VersionBytes += int64(older[[2]int{s, k}]) * cost.WeightBytes
		}
		if all := pl.Predicted.PeakGradients; policy.Synchronous() && all != nil { // nil: predicted by an earlier process
			m.GradientBytes = min(m.GradientBytes, all[i])
		}
		m.ActivationBytes = each / int64(len(m.Stages)) * int64(m.MicrosInFlight)
		fixed := m.WeightBytes + m.FrozenBytes + m.VersionBytes + m.GradientBytes + m.OptimizerBytes
		// At the peak, fewer micro-batches may have been in flight than at other times. The activations are then smaller
		// than the product above.
		m.ActivationBytes = min(m.ActivationBytes, max(0, m.PeakBytes-fixed))
		m.BufferBytes = max(0, m.PeakBytes-fixed-m.ActivationBytes)
		out = append(out, m)
	}
	return out
}

// olderVersions counts the older weights that a stream keeps, by stage and replica, as in its Program. It returns nil
// for other plans, and for those whose Program cannot be made.
func olderVersions(pl *plan.Plan) map[[2]int]int {
	if schedule.Policy(pl.Weights).Flushes() {
		return nil
	}
	program, err := programs.AtLeast(pl, nil, false, 2+2*len(pl.Devices())/pl.MicroBatches)
	if err != nil {
		return nil
	}
	out := map[[2]int]int{}
	for _, h := range program.Holdings() {
		out[[2]int{h.Stage, h.Replica}] = h.Versions - 1
	}
	return out
}

// worthAdvising is the least gain that is reported; predictions are not accurate enough for less.
const worthAdvising = 0.01

// levers tries better hardware and keeps the changes that help. If predicting the plan takes long, it tries no changes.
// After ctx's deadline it begins no search. It then lists in LeversLeft the changes that no earlier search has tried.
// If a search finds a plan that this hardware can run, s considers that plan.
func (out *Explanation) levers(ctx context.Context, r Request, pl *plan.Plan, s *search, known map[string]float64) {
	better := betterHardware(r.Cluster, s != nil)
	if err := predict.CheckWork(pl, predict.OftenPlayed); err != nil {
		out.leave(better, "predicting this plan takes too long to do it often")
		return
	}
	for i, h := range better {
		before, searched := known[h.change]
		if ctx.Err() != nil && !searched {
			out.leave(better[i:i+1], "no time was left for them")
			continue
		}
		step, same := pl.Predicted.StepS, len(h.Devices) == len(r.Cluster.Devices)
		if same { // h has as many devices, so the plan itself runs there, and may be faster
			if q, err := predict.Plan(r.Profile, h.Cluster, pl, r.Clip); err == nil {
				step = min(step, q.StepS)
			}
		}
		if searched {
			step = min(step, before)
		}
		if s != nil && ctx.Err() == nil {
			if r.Asked != nil {
				r.Asked(h.change)
			}
			brief := r
			brief.Cluster, brief.brief, brief.start, brief.Simulated = h.Cluster, true, pl, nil
			usual := shortest
			if brief.others = !same || h.roomier && crowded(r.Cluster, pl); brief.others {
				usual = longest
			}
			if end, ok := ctx.Deadline(); ok {
				share := time.Until(end) / time.Duration(len(better)-i)
				brief.Longest = max(1, min(cmp.Or(r.Longest, usual), share))
			}
			if found, err := Search(ctx, brief); err == nil {
				out.LeversCut = out.LeversCut || found.search.cutAt > 0
				over := int64(0)
				if same {
					s.consider(found.Best)
					_, over = predict.Over(r.Cluster, found.Best, found.Best.Predicted)
				}
				if over > 0 || !h.roomier {
					step = min(step, found.Best.Predicted.StepS)
				}
				known[h.change] = step
			}
		}
		if gain := pl.Predicted.StepS/step - 1; gain >= worthAdvising {
			out.Levers = append(out.Levers, Lever{Change: h.change, StepS: step, Gain: gain})
		}
	}
	slices.SortStableFunc(out.Levers, func(a, b Lever) int { return cmp.Compare(b.Gain, a.Gain) })
}

// limited says whether some device has a memory limit.
func limited(c *cluster.Cluster) bool {
	for d := range c.Devices {
		if c.MemoryBytes(d) > 0 {
			return true
		}
	}
	return false
}

// crowded says whether a plan fills more than half of some device's memory, so that more memory may allow other plans.
func crowded(c *cluster.Cluster, pl *plan.Plan) bool {
	needs := pl.Predicted.Needs()
	for i, d := range pl.Devices() {
		if limit := c.MemoryBytes(d); limit > 0 && 2*needs[i] > limit {
			return true
		}
	}
	return false
}

// leave notes changes that are not tried, and why.
func (out *Explanation) leave(changes []hardware, why string) {
	for _, h := range changes {
		out.LeversLeft, out.LeversLeftWhy = append(out.LeversLeft, h.change), why
	}
}

// hardware is a cluster that is better than another one in a single respect.
type hardware struct {
	change string
	*cluster.Cluster
	roomier bool // the cluster is better only by more memory
}

// betterHardware lists hardware changes to try. Without a search it lists only those that speed up the given plan
// itself.
func betterHardware(c *cluster.Cluster, searched bool) (all []hardware) {
	for i, l := range c.Levels {
		if l.Size > 1 {
			all = append(all, hardware{"twice the bandwidth of level " + l.Name, faster(c, i), false})
		}
	}
	if !searched {
		return all
	}
	if limited(c) {
		all = append(all, hardware{"twice the memory of every device",
			c.WithMemory(func(own int64) int64 { return 2 * own }), true})
	}
	if !c.SharesCores() {
		outer := c.Levels[len(c.Levels)-1]
		all = append(all, hardware{fmt.Sprintf("twice as many devices (%s of %d)", outer.Name, 2*outer.Size), doubled(c),
			false})
	}
	return all
}

// faster returns the cluster with twice the bandwidth at a level.
func faster(c *cluster.Cluster, level int) *cluster.Cluster {
	next := *c
	next.Levels = slices.Clone(c.Levels)
	next.Levels[level].BandwidthBytesPerSecond *= 2
	next.Levels[level].CollectiveBandwidthBytesPerSecond *= 2
	if level == 0 {
		next.Nodes = slices.Clone(c.Nodes)
		for i := range next.Nodes {
			next.Nodes[i].BandwidthBytesPerSecond *= 2
		}
	}
	return &next
}

// doubled returns the cluster with twice as many members of its outermost level.
func doubled(c *cluster.Cluster) *cluster.Cluster {
	next := *c
	next.Levels = slices.Clone(c.Levels)
	next.Levels[len(c.Levels)-1].Size *= 2
	next.Devices = slices.Concat(c.Devices, c.Devices)
	if c.Nodes != nil {
		next.Nodes = slices.Concat(c.Nodes, c.Nodes)
	}
	return &next
}

// Remedies lists small changes that make a model fit. The first is a memory limit with which a simulated plan fits. A
// second one may be more devices of the same kind. All its searches together may take as long as one search; at most
// one of them ends later.
func Remedies(ctx context.Context, r Request, e *MemoryError) []string {
	out := []string{fmt.Sprintf("devices of %s (%dB): %s", terminal.Bytes(e.SmallestBytes), e.SmallestBytes,
		e.Plan)}
	ctx, cancel := context.WithTimeout(ctx, r.limit())
	defer cancel()
	bigger := r
	for times := 2; times <= 8 && !r.Cluster.SharesCores() && ctx.Err() == nil; times *= 2 {
		bigger.Cluster, bigger.brief, bigger.inner = doubled(bigger.Cluster), true, true
		if found, err := Search(ctx, bigger); err == nil {
			return append(out, fmt.Sprintf("%d devices like these: %s", len(bigger.Cluster.Devices),
				describe(r.Profile, found.Best)))
		}
	}
	return out
}
