package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Policy says which version of the weights a forward and its backward use, and when updates are made. The order of
// instructions is a separate choice (package family).
//
// The version of a stage's weights is the number of updates that they have had. In the formulas below, t is a
// minibatch, counted from 0, S the number of stages, and v(t) the version that the forward of t uses. If a formula
// gives less than 0, v(t) is 0.
type Policy string

// The policies. All but Sync and Elastic belong to orders without a flush.
const (
	// Sync updates once per flush: every micro-batch of a step sees the same weights, v(t) = t.
	Sync Policy = "sync"
	// Latest uses the newest version, also in the backward, which then may not match its forward. It shows why the
	// other policies are needed.
	Latest Policy = "latest"
	// Stash uses the newest version in a forward, and keeps it for its backward (PipeDream §3.3, weight stashing). On
	// stage i of a straight pipeline, counted from 0, v(t) = t-(S-i)+1, so that S-i versions are kept.
	Stash Policy = "stash"
	// Vertical makes a minibatch use on every stage the version that the input stage had (PipeDream §3.3, vertical
	// sync): v(t) = t-S+1.
	Vertical Policy = "vertical"
	// DoubleBuffered is PipeDream-2BW (Narayanan et al., ICML 2021): v(t) = t-1 on every stage. So w(t+1) = w(t) - lr
	// grad f(w(t-1)), with weights w, loss f and learning rate lr, and at most two versions are kept.
	DoubleBuffered Policy = "2bw"
	// Elastic is AvgPipe's elastic averaging (PPoPP 2023, §3.2): several pipelines on the same workers, each with its
	// own weights. Each is updated at its own flush, v(t) = t as under Sync, and is then pulled towards a reference
	// model. Family elastic defines which version of the reference that is.
	Elastic Policy = "elastic"
	// ASP is asynchronous data parallelism (PipeDream §5.2): one worker holds the weights; every other worker fetches the
	// newest, computes a minibatch, and has its update made at once. v(t) depends on the order in which updates happened
	// to arrive. See server.go.
	ASP Policy = "asp"
)

// rule is the data of a policy. A new policy needs a constant above and a row in `rules`.
type rule struct {
	policy Policy
	// streams: updates are made without a flush, so that minibatches of a pipeline overlap.
	streams bool
	// forward chooses, among the versions of a stage, the one that a forward reads. `own` is the version that the
	// minibatch's own update will change. `tag` is the version that the input stage had for the minibatch.
	forward func(newest, own, tag int) int
	tagged  bool // forward reads tag
	// needs says which update must come before a forward of a minibatch. 1 means the update of the minibatch before, 2
	// the update of the second minibatch before. 0 means none.
	needs int
	// mismatches: a backward reads the newest version, not the version that its forward read.
	mismatches bool
	// accumulates: a minibatch of a stream has several micro-batches, at least one for each stage.
	accumulates bool
	// older is the most versions that a stage keeps in addition to the newest, however many minibatches are in flight.
	older   int
	updater Updater
	// served: one worker holds the weights, and the others fetch them for each minibatch.
	served bool
}

func readNewest(newest, _, _ int) int { return newest }

// rules has a row for each policy.
var rules = []rule{
	{policy: Sync, forward: readNewest, needs: 1, updater: PlainUpdate},
	{policy: Latest, streams: true, forward: readNewest, mismatches: true, updater: PlainUpdate},
	{policy: Stash, streams: true, forward: readNewest, older: math.MaxInt, updater: PlainUpdate},
	{policy: Vertical, streams: true, forward: func(_, _, tag int) int { return tag }, tagged: true,
		older: math.MaxInt, updater: PlainUpdate},
	{policy: DoubleBuffered, streams: true, forward: func(_, own, _ int) int { return max(0, own-1) }, needs: 2,
		accumulates: true, older: 1, updater: PlainUpdate},
	{policy: Elastic, forward: readNewest, needs: 1, updater: ElasticUpdate},
	{policy: ASP, streams: true, forward: readNewest, updater: PlainUpdate, served: true},
}

// rule returns a policy's row. For a policy that is not Known, it returns the row of Sync.
func (w Policy) rule() *rule {
	for i := range rules {
		if rules[i].policy == w {
			return &rules[i]
		}
	}
	return &rules[0]
}

// Policies lists all policies.
func Policies() []Policy {
	var all []Policy
	for _, r := range rules {
		all = append(all, r.policy)
	}
	return all
}

// Known reports whether a policy is one of Policies, or empty, which means Sync.
func (w Policy) Known() bool { return slices.Contains(Policies(), cmp.Or(w, Sync)) }

// Flushes reports whether every pipeline ends a minibatch before it begins the next one. Then one version of its
// weights is enough.
func (w Policy) Flushes() bool { return !w.rule().streams }

// Synchronous reports whether there is one set of weights, updated at the flush.
func (w Policy) Synchronous() bool { return w.Flushes() && !w.Averages() }

// Averages reports whether pipelines have their own weights, so that an iteration takes a batch for each pipeline.
func (w Policy) Averages() bool { return w.rule().updater == ElasticUpdate }

// Mismatches reports whether a backward may use other weights than its forward.
func (w Policy) Mismatches() bool { return w.rule().mismatches }

// Accumulates reports whether a minibatch of a stream has several micro-batches, at least one for each stage.
func (w Policy) Accumulates() bool { return w.rule().accumulates }

// Defers reports whether a family may delay an update until a forward needs it. It may if every forward reads an
// older version.
func (w Policy) Defers() bool { return w.rule().needs > 1 }

// OlderVersions returns how many versions a stage keeps in addition to the newest while inFlight minibatches are in
// flight.
func (w Policy) OlderVersions(inFlight int) int { return max(0, min(w.rule().older, inFlight-1)) }

// Served reports whether one worker holds the weights, and the others fetch them for each minibatch.
func (w Policy) Served() bool { return w.rule().served }

// Updater returns how weights are updated if a Program needs no other Updater.
func (w Policy) Updater() Updater { return w.rule().updater }
