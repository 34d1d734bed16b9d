package tune

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Overrides holds what the user fixes; zero values leave the choice to the search.
type Overrides struct {
	Stages       int             // 1 with several workers means data parallelism
	Split        []int           // first layers of stages 1, 2, ...
	Schedule     string          // a family of package schedule
	Weights      schedule.Policy // a weight policy; "" means the family's own
	Elastic      *plan.Elastic   // pipelines side by side, for the weight policy elastic; nil means the family's own
	MicroBatch   int             // samples
	MicroBatches int
	Recompute    string // "none", "stage" or "all", "every:K", "blocks", "selective"; "auto" or "": the search decides
	Warmup       []int  // K_i by stage
	// PostValidate lets updates at a flush start before the gradient norm is known (plan.Plan.PostValidate).
	PostValidate bool
	Staleness    *int // for the weight policy asp (plan.Plan.Staleness)
	// Boundary is the format of tensors sent between stages (plan.Plan.Boundary).
	Boundary packing.Format
	// Shard and Gradients say what replicas shard and when they sum gradients (plan.Plan).
	Shard     plan.Shard
	Gradients plan.Gradients
}

func (o Overrides) none() bool { return o.MicroBatch == 0 && o.MicroBatches == 0 && o.sizesAtMost() }

// sizesAtMost says that nothing is fixed, except possibly the micro-batches.
func (o Overrides) sizesAtMost() bool {
	return o.Stages == 0 && o.Split == nil && o.Schedule == "" &&
		(o.Recompute == "" || o.Recompute == "auto") && o.Warmup == nil && o.Weights == "" && o.Elastic == nil &&
		o.Shard == plan.ShardNothing && o.Gradients == plan.GradientsOverlapped
}

// Request describes a search.
type Request struct {
	Profile *profile.Profile
	Cluster *cluster.Cluster // a plan has at most one worker for each of its devices
	Batch   int              // samples of a step
	Clip    bool             // the update needs the global gradient norm
	Fix     Overrides
	// Time is how long the search may take; it ends sooner only if nothing is left to try. With 0 the search does a
	// fixed amount of work, but stops when Longest is over.
	Time time.Duration
	// Longest is how long the fixed amount of work may take; 0 means 10 s, or 1 s for a what-if search for other
	// hardware. If Longest is hours, the work always ends first, so the answer does not depend on the machine's speed.
	// Longest is ignored if Time is given.
	Longest time.Duration
	// Runnable restricts the search to plans that package run executes: whole layers in the model's own order.
	Runnable bool
	// Whole rules out the replication `split`, which takes slices of micro-batches. A model that normalises over its
	// micro-batches would compute something else on slices.
	Whole bool
	// Async allows families that update without a flush.
	Async bool
	// Simulated is called after each simulated plan, with the number of plans so far; it may be nil.
	Simulated func(plans int)
	// Asked is called with a change of the hardware before a search for the changed hardware; it may be nil.
	Asked func(change string)

	brief bool       // a fraction of the work, for what-if questions
	start *plan.Plan // the plan from which a brief search starts
	// others says that a brief search tries families that it would leave out, because the hardware allows other plans.
	others bool
	// inner says that another search runs this one as a part of its work. Then a MemoryError names the limit that this
	// search finds, without further searches. This search also examines no micro-batch size as a whole (exhaustSizes),
	// because the other one does so itself, or asks only whether a plan fits.
	inner bool
	// forRivals says that an inner search finds rivals (likeRivals). It does examine micro-batch sizes as a whole.
	forRivals bool
}

// Rival is the best plan of its kind.
type Rival struct {
	// Kind says what kind of plan the rival is. It is the name of a family, followed by its weight policy if that is
	// not synchronous. If the search tries depths of the family and stages are on several devices, "replicated "
	// precedes the name. Or Kind is "data parallelism", "data parallelism, overlapped", "one worker", "straight
	// pipeline", "model parallel", "hybrid parallelism", or "equal split"; or a planner's name, followed by " async"
	// for a stream.
	Kind      string         `json:"kind"`
	Plan      *plan.Plan     `json:"plan,omitempty"`
	Predicted plan.Predicted `json:"predicted"`
	Fits      bool           `json:"fits"`
	Note      string         `json:"note,omitempty"` // why the rival cannot be chosen, or what it represents
	Why       string         `json:"why,omitempty"`  // why the rival loses, in a few words; "" for the best
	// Same is the kind of another rival with the same plan, which is listed for both; "" means none.
	Same string `json:"same,omitempty"`
}

// Result holds the best plan, and the best plan of every other kind, ranked.
type Result struct {
	Best      *plan.Plan
	Rivals    []Rival     // the best first, including Best
	Tried     int         // number of simulated plans
	Estimated int         // number of shapes whose step was estimated
	LowestS   float64     // bound.Step for the best plan's kind; 0 if nothing is proven
	Proof     bound.Proof // the proof of LowestS
	// Exhaustive says that every plan of the searched space was examined, so by the simulator no plan of that space is
	// faster.
	Exhaustive bool

	search *search // the search that found the result
}

// SettingError rejects a fixed setting of a plan.
type SettingError struct {
	Key string // the job's key for this setting
	Err error  // what is wrong, and what would be right
}

func (e *SettingError) Error() string { return "tune: " + e.Key + ": " + e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

func wrong(key, format string, args ...any) error {
	return &SettingError{key, fmt.Errorf(format, args...)}
}

// Check refuses requests that contradict themselves, and fills in micro-batch sizes.
func (r *Request) Check() error {
	known := r.Profile.DeviceTypes()
	for d, t := range r.Cluster.Devices {
		if (d == 0 || t != r.Cluster.Devices[d-1]) && !r.Profile.Covers(t) {
			return fmt.Errorf("tune: device %d of %s is of type %q, for which the profile of %s has no costs; it has %s", d,
				r.Cluster.Name, t, r.Profile.Model, strings.Join(known, ", "))
		}
	}
	if err := plan.CheckBatch(r.Batch); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	for _, t := range []time.Duration{r.Time, r.Longest} {
		if t < 0 {
			return fmt.Errorf("tune: %v to search; give a time over 0", t)
		}
	}
	if r.Runnable {
		if err := r.Fix.Executed(); err != nil {
			return err
		}
	}
	if err := r.Fix.Check(r.Profile.Model, len(r.Profile.Layers), len(r.Cluster.Devices), r.Batch); err != nil {
		return err
	}
	if m := r.Fix.MicroBatches; m > 0 {
		r.Fix.MicroBatch = r.Batch / m
	}
	return nil
}

// Check refuses settings that contradict each other, or that no plan can have. The plan is for a model with the given
// layers, workers and batch. Search checks this too; Check needs no profile.
func (o Overrides) Check(model string, layers, workers, batch int) error {
	if m := o.MicroBatches; m > 0 {
		if batch%m != 0 {
			return wrong("micro_batches", "a batch of %d samples does not divide into %d micro-batches; give a divisor of %d",
				batch, m, batch)
		}
		if o.MicroBatch > 0 && o.MicroBatch*m != batch {
			return wrong("micro_batches", "%d micro-batches of %d samples are not a batch of %d; leave one of them out", m,
				o.MicroBatch, batch)
		}
	}
	if o.MicroBatch > 0 && batch%o.MicroBatch != 0 {
		return wrong("micro_batch", "a batch of %d samples does not divide into micro-batches of %d; give a divisor of %d",
			batch, o.MicroBatch, batch)
	}
	return o.checkStages(model, layers, workers)
}

// severalStages says whether a worker may hold more than one stage under a schedule.
func severalStages(name string) bool {
	f, err := family.Lookup(name)
	return err == nil && roles.SeveralStages(f)
}

func (o Overrides) checkStages(model string, layers, workers int) error {
	if o.Split != nil && o.Stages > 0 && len(o.Split)+1 != o.Stages {
		return wrong("split", "it makes %s, and stages is %d; leave one of them out",
			terminal.Count(len(o.Split)+1, "stage"), o.Stages)
	}
	if o.Stages > layers {
		return wrong("stages", "%d stages; %s has %d layers, so give 1 to %d", o.Stages, model, layers, layers)
	}
	if n := max(o.Stages, len(o.Split)+1); n > workers && n > 1 && !severalStages(o.Schedule) {
		key := "stages"
		if o.Split != nil {
			key = "split"
		}
		return wrong(key, "%d stages for %s; give as many workers at least, or a schedule that has several stages "+
			"on each: %s", n, terminal.Count(workers, "worker"), strings.Join(roles.WithSeveralStages(), ", "))
	}
	if f, err := family.Named(o.Schedule); err == nil && roles.WholeModel(f) && !f.IsGeneral() && workers > 1 {
		return wrong("schedule", "%s; it is for one worker, and there are %d: give one worker, or the schedule %s, which "+
			"has the whole model on each", f.Name, workers, roles.Undivided().Name)
	}
	before := 0
	for _, cut := range o.Split {
		if cut <= before || cut >= layers {
			return wrong("split", "%v; give rising layers between 1 and %d", o.Split, layers-1)
		}
		before = cut
	}
	if o.Warmup != nil && o.Stages == 0 && o.Split == nil {
		return fmt.Errorf("tune: warm-up depths %v without a number of stages; fix that too", o.Warmup)
	}
	if n := max(o.Stages, len(o.Split)+1); o.Warmup != nil && len(o.Warmup) != n {
		return fmt.Errorf("tune: %d warm-up depths for %d stages; give one for each", len(o.Warmup), n)
	}
	return o.CheckNames()
}

// CheckNames refuses unknown schedules, weight policies and recomputes. It also refuses a boundary format or gradient
// sums that other settings rule out. Check calls it; unlike Check, it needs no model.
func (o Overrides) CheckNames() error {
	if o.Schedule != "" {
		if _, err := family.Named(o.Schedule); err != nil {
			return &SettingError{"schedule", err}
		}
	}
	if err := o.checkBoundary(); err != nil {
		return err
	}
	if err := o.Shard.Sums(o.Gradients); err != nil {
		return wrong("gradients", "%w", err)
	}
	if err := registry.OneOf(string(o.Weights), policies()); o.Weights != "" && err != nil {
		return &SettingError{"weights", err}
	}
	_, _, err := o.FixedRecompute()
	return err
}

// checkBoundary refuses a format of boundaries in a plan of one stage.
func (o Overrides) checkBoundary() error {
	f, err := family.Lookup(o.Schedule)
	switch {
	case !o.Boundary.Packs():
		return nil
	case o.Weights.Served() || err == nil && f.Undivided:
		return wrong("boundary", "%s; under schedule %s a worker has the whole model, and no stage sends another its "+
			"activations: leave it out", o.Boundary, cmp.Or(o.Schedule, string(o.Weights)))
	case o.Stages == 1:
		return wrong("boundary", "%s; one stage sends no other its activations: leave it out", o.Boundary)
	}
	return nil
}

func policies() (names []string) {
	for _, w := range schedule.Policies() {
		names = append(names, string(w))
	}
	return names
}

// FixedRecompute returns the recompute that is fixed for every stage; ok is false if the search decides.
func (o Overrides) FixedRecompute() (fixed plan.Recompute, ok bool, err error) {
	switch o.Recompute {
	case "", "auto":
		return plan.KeepAll, false, nil
	case "all":
		return plan.KeepInput, true, nil
	}
	fixed, err = plan.ParseRecompute(o.Recompute)
	if err != nil {
		return fixed, false, wrong("recompute", "%q; give auto, none, stage (or all), every:K for K layers at a time, "+
			"blocks, or selective", o.Recompute)
	}
	return fixed, true, nil
}

// Executed refuses settings that can only be planned and simulated, because package run does not execute them.
func (o Overrides) Executed() error {
	const alone = "it is planned and simulated for described devices (--cluster), not executed here"
	if o.Shard != plan.ShardNothing {
		return wrong("shard", "%s; %s: leave it out", o.Shard, alone)
	}
	if o.Gradients == plan.GradientsBehind {
		return wrong("gradients", "%s; %s: give overlapped, or bucket= and a size", o.Gradients, alone)
	}
	if again, _, _ := o.FixedRecompute(); !again.Trained() {
		return wrong("recompute", "%v; %s: give auto, none, stage or every:K", again, alone)
	}
	return nil
}

// alternatives lists what one stage may recompute: nothing, everything at once, and in most cases k layers at a time.
// With k layers at a time, n equal layers keep the inputs of n/k runs. That takes the least memory if k is the square
// root of n (Chen et al. 2016, section 4.1).
func alternatives(layers int) []plan.Recompute {
	all := []plan.Recompute{plan.KeepAll, plan.KeepInput}
	if k := int(math.Round(math.Sqrt(float64(layers)))); k > 1 && k < layers {
		all = append(all, plan.Every(k))
	}
	return all
}

// settleStaleness refuses a staleness under a schedule or policy that has none. If no policy is named, it fills in the
// one with a staleness.
func (r *Request) settleStaleness() error {
	s := r.Fix.Staleness
	if s == nil {
		return nil
	}
	if f, err := family.Lookup(r.Fix.Schedule); r.Fix.Weights == "" && (r.Fix.Schedule == "" ||
		err == nil && f.AdmitsPolicy(roles.Serving())) {
		r.Fix.Weights = roles.Serving()
	}
	if !r.Fix.Weights.Served() {
		return wrong("staleness", "%d minibatches; a worker is ahead of others under schedule asp alone", *s)
	}
	return nil
}

// settleWeights checks the requested weight policy. If the policy is not synchronous and no schedule is named, it fills
// in the family for that policy.
func (r *Request) settleWeights() error {
	if e := r.Fix.Elastic; e != nil {
		if err := e.Check(); err != nil {
			return fmt.Errorf("tune: %w", err)
		}
		if r.Fix.Weights == "" {
			_, r.Fix.Weights = roles.Averaging()
		}
		if _, own := roles.Averaging(); r.Fix.Weights != own {
			return wrong("weights", "%d pipelines side by side have %q, not %q; leave it out", e.Pipelines, own,
				r.Fix.Weights)
		}
	}
	if err := r.settleStaleness(); err != nil {
		return err
	}
	w := r.Fix.Weights
	if w == "" {
		return nil
	}
	if r.Fix.Schedule != "" {
		f, err := family.Lookup(r.Fix.Schedule)
		if err == nil {
			err = f.Keeps(w)
		}
		if err != nil {
			return &SettingError{"schedule", fmt.Errorf("%s: %w", r.Fix.Schedule, err)}
		}
		return nil
	}
	if w.Synchronous() {
		return nil
	}
	for _, f := range family.All() {
		if f.AdmitsPolicy(w) {
			r.Fix.Schedule = f.Name
			return nil
		}
	}
	return wrong("weights", "no schedule keeps %q", w)
}
