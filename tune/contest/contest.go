package contest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Rules says what to compare: every family of schedules, under every weight policy that it supports, on the same
// workers, micro-batches and memory. Nothing is searched: each order gets a stage on every worker, or the number of
// stages that it needs.
type Rules struct {
	Workers      int
	MicroBatches int // micro-batches of a step; a stream is ranked by the time of this many minibatches
	Chunks       int // stages on each worker, for orders that allow a choice
	// MemoryBytes returns a worker's memory; a result of 0, or a nil function, means no limit.
	MemoryBytes func(worker int) int64
	// Bytes formats a number of bytes for the reasons.
	Bytes func(int64) string
	// Stages returns the costs of a family's stages under a placement, and which stages are tied.
	Stages func(f family.Family, placement [][]int) (sim.Costs, [][]int, error)
	Clip   bool // updates need the gradient norm
	// PostValidate also compares orders with a flush whose updates do not wait for the norm.
	PostValidate bool
	// Only lists the families to compare; empty means all. Weights is the only policy to compare; empty means every
	// policy.
	Only    []string
	Weights schedule.Policy
}

// Verdict is the result of an entry.
type Verdict string

// The verdicts, in the order in which they are listed.
const (
	Won     Verdict = "best"
	Slower  Verdict = "slower"
	Control Verdict = "control" // fast, but its backwards use other weights than their forwards
	TooBig  Verdict = "memory"
	Refused Verdict = "refused"
)

var verdicts = []Verdict{Won, Slower, Control, TooBig, Refused}

// Entry is one order with one weight policy.
type Entry struct {
	Schedule string          `json:"schedule"`
	Weights  schedule.Policy `json:"weights"`
	// Replicas is the number of workers of each stage under hybrid parallelism (PipeDream §5.3): data and model
	// parallelism together, without pipelining. 0 means the family's placement.
	Replicas int `json:"replicas,omitempty"`
	// Validated means that updates do not wait for the gradient norm and are validated in the next step.
	Validated bool    `json:"validated,omitempty"`
	Verdict   Verdict `json:"verdict"`
	Why       string  `json:"why"`
	Stages    int     `json:"stages,omitempty"`
	// StepS is the time of a steady step with the Rules' micro-batches.
	StepS           float64 `json:"step_s,omitempty"`
	Bubble          float64 `json:"bubble"`
	PeakBytes       []int64 `json:"peak_bytes,omitempty"`       // by worker
	PeakActivations []int   `json:"peak_activations,omitempty"` // by worker, summed over its chunks
	Versions        []int   `json:"versions,omitempty"`         // by worker
	// Lost has the time in which workers do not compute, by cause, as fractions of the workers' time.
	Lost Losses `json:"lost"`
	// Behind is the additional time compared with the best entry, as a fraction of that entry's time.
	Behind float64 `json:"behind"`
}

// Run simulates every entry and ranks them, the best first.
func (c Rules) Run(ctx context.Context) ([]Entry, error) {
	if c.Workers < 1 || c.MicroBatches < 1 || c.Workers > mostVisits/c.MicroBatches {
		return nil, fmt.Errorf("tune: %d workers and %d micro-batches to compare schedules on; give 1 of each at least, "+
			"and %d in all at most", c.Workers, c.MicroBatches, mostVisits)
	}
	families := family.All()
	if len(c.Only) > 0 {
		families = nil
		for _, name := range c.Only {
			f, err := family.Lookup(name)
			if err != nil {
				return nil, err
			}
			families = append(families, f)
		}
	}
	var all []Entry
	for _, f := range families {
		for _, policy := range roles.PoliciesOf(f) {
			if c.Weights != "" && policy != c.Weights {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("tune: comparing schedules: %w", err)
			}
			one := Entry{Schedule: f.Name, Weights: policy}
			all = append(all, c.enter(f, one))
			if c.PostValidate && c.Clip && policy.Synchronous() {
				later := one
				later.Validated = true
				all = append(all, c.enter(f, later))
			}
			if both := one; f.Alone && c.Workers >= 2*hybridReplicas && c.Workers%hybridReplicas == 0 {
				both.Replicas = hybridReplicas
				all = append(all, c.enter(f, both))
			}
		}
	}
	rank(all)
	return all, nil
}

// mostTurns limits the steps after which replicas that take turns have had as many micro-batches each.
const mostTurns = 64

// mostVisits limits workers times micro-batches.
const mostVisits = 1 << 17

// hybridReplicas is the number of workers of a stage under hybrid parallelism: two chains of stages side by side.
const hybridReplicas = 2

func (c Rules) enter(f family.Family, e Entry) Entry {
	policy := e.Weights
	e.Verdict = Slower
	refuse := func(err error) Entry {
		e.Verdict = Refused
		e.Why = terminal.Singular(strings.TrimPrefix(err.Error(), "schedule: "+f.Name+": ")) // the row names the family
		return e
	}
	placement := f.Placement(c.Workers, max(1, c.Chunks))
	if e.Replicas > 0 {
		placement = schedule.Replicated(c.Workers/e.Replicas, e.Replicas)
	}
	e.Stages = len(placement)
	costs, tied, err := c.Stages(f, placement)
	if err != nil {
		return refuse(err)
	}
	if f.Streaming && costs.Streams == nil {
		return refuse(fmt.Errorf("it is for devices that transfer while they compute, and these do not"))
	}
	// Each stage is one layer here, so tied stages are tied layers.
	pl := &plan.Plan{Schedule: f.Name, Weights: string(policy), MicroBatches: c.MicroBatches, PostValidate: e.Validated}
	for i, on := range placement {
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: i, LastLayer: i, Devices: on})
	}
	repeat, steps := Steps, 1.0 // `steps` of the entry are one step of the contest
	if alone(policy) {
		pl.MicroBatches, steps = 1, float64(c.MicroBatches)
		repeat *= max(c.MicroBatches, 2*c.Workers)
	}
	turns := 1
	if n, few := predict.Turns(pl); few && !policy.Flushes() && n <= mostTurns {
		turns = n
		repeat = max(repeat, Steps*turns)
	}
	p, err := programs.Build(pl, tied, c.Clip, repeat)
	var rep check.Report
	if err == nil {
		rep, err = check.Check(p)
	}
	if err != nil {
		return refuse(err)
	}
	// Use only the constant part of the noise: with varying times, losses cannot be told apart.
	constant := costs.Noise
	constant.Spread = nil
	o := sim.Options{Record: true, Vary: constant.Vary()}
	t, sum, err := sim.Run(p, costs, o)
	if err != nil {
		return refuse(err)
	}
	e.PeakBytes, e.PeakActivations, e.Versions = sum.PeakBytes, sum.PeakActivations, rep.Versions
	each, lost := lossesOf(t, p, turns)
	if costs.Transfer != nil {
		still := costs
		still.Transfer, still.Occupies = nil, nil
		at, _, err := sim.Run(p, still, o)
		if err != nil {
			return refuse(err)
		}
		lost = lost.split(each, at, p, turns)
	}
	e.StepS, e.Lost = each*steps/float64(p.Pipelines()), lost
	e.Bubble = lost.Sum()
	if policy.Mismatches() {
		e.Verdict = Control
	}
	if worker, over := c.over(sum.PeakBytes); over > 0 {
		e.Verdict = TooBig
		e.Why = fmt.Sprintf("worker %d has room for %s", worker, c.bytes(c.MemoryBytes(worker)))
	}
	return e
}

// alone reports whether each micro-batch of an entry is a minibatch of its own, with an update.
func alone(w schedule.Policy) bool { return !w.Flushes() && !w.Accumulates() }

// UpdatedAlone names the weight policies of entries in which each micro-batch is a minibatch with an update.
func UpdatedAlone(all []Entry) (names []string) {
	for _, e := range all {
		if alone(e.Weights) && e.Verdict != Refused {
			names = append(names, string(e.Weights))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// over returns the worker that exceeds its memory most, and by how many bytes.
func (c Rules) over(peaks []int64) (worker int, over int64) {
	if c.MemoryBytes == nil {
		return 0, 0
	}
	for w, peak := range peaks {
		if limit := c.MemoryBytes(w); limit > 0 && peak-limit > over {
			worker, over = w, peak-limit
		}
	}
	return worker, over
}

func (c Rules) bytes(n int64) string {
	if c.Bytes == nil {
		return fmt.Sprintf("%d bytes", n)
	}
	return c.Bytes(n)
}

// name identifies an entry by its schedule, and by what else differs: its replicas, its validation, or weights that are
// not synchronous.
func (e *Entry) name() string {
	if e.Replicas > 0 {
		return fmt.Sprintf("%s on %s a stage", e.Schedule, terminal.Count(e.Replicas, "worker"))
	}
	if e.Validated {
		return e.Schedule + " validated later"
	}
	if e.Weights.Synchronous() {
		return e.Schedule
	}
	return e.Schedule + " " + string(e.Weights)
}

// rounding is the largest relative difference in time that rounding may cause.
const rounding = 1e-9

// rank sorts the entries, and says for each why it loses to the best.
func rank(all []Entry) {
	most := func(e *Entry) int64 {
		if len(e.PeakBytes) == 0 {
			return 0
		}
		return slices.Max(e.PeakBytes)
	}
	slices.SortStableFunc(all, func(a, b Entry) int {
		if d := slices.Index(verdicts, a.Verdict) - slices.Index(verdicts, b.Verdict); d != 0 {
			return d
		}
		if d := a.StepS - b.StepS; math.Abs(d) > rounding*a.StepS {
			return cmp.Compare(d, 0)
		}
		return cmp.Or(cmp.Compare(most(&a), most(&b)), cmp.Compare(a.Schedule, b.Schedule))
	})
	if len(all) == 0 || all[0].Verdict != Slower {
		return // nothing fits, or only controls do
	}
	best := &all[0]
	best.Verdict, best.Why = Won, "the fastest that fits"
	for i := range all[1:] {
		e := &all[1+i]
		if e.StepS > 0 {
			e.Behind = e.StepS/best.StepS - 1
		}
		switch e.Verdict {
		case Slower:
			e.Why = e.slower(best, most(e)-most(best))
		case Control:
			e.Why = "backwards use other weights than their forwards did: to compare with, not to train"
		}
	}
}

// noticedWork is a threshold. A reason mentions an entry's compute per worker if it exceeds the best entry's by this
// factor.
const noticedWork = 1.02

// slower says why an entry that fits loses to the best.
func (e *Entry) slower(best *Entry, more int64) string {
	if e.Behind <= rounding {
		if more > 0 {
			return fmt.Sprintf("as fast as %s, holds more", best.name())
		}
		return fmt.Sprintf("as fast as %s, holds as much", best.name())
	}
	why := e.Lost.String()
	work, least := e.StepS*(1-e.Bubble), best.StepS*(1-best.Bubble)
	switch {
	case work < noticedWork*least:
		return why
	case e.Lost.Sum() < worthNaming:
		return fmt.Sprintf("%.3g times the work for each worker", work/least)
	}
	return fmt.Sprintf("%.3g times the work for each worker; %s", work/least, why)
}
