package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Policy says which version of the weights a forward and its backward use, and when updates land. The order of
// instructions is another choice (package family).
//
// The version of a stage's weights is the number of updates that they have had, 0 before any. Below t is a minibatch,
// counted from 0, S the number of stages, and v(t) the version that the forward of t uses; it is 0 where a formula
// gives less.
type Policy string

// The policies. All but Sync and Elastic belong to orders without a flush.
const (
	// Sync updates once per flush: every micro-batch of a step sees the same weights, v(t) = t.
	Sync Policy = "sync"
	// Latest uses the newest version, in the backward too, which then may not match its forward. It shows what the other
	// policies are for.
	Latest Policy = "latest"
	// Stash uses the newest version in a forward, and keeps it for its backward (PipeDream §3.3, weight stashing). On
	// stage i of a straight pipeline, counted from 0, v(t) = t-(S-i)+1, so that S-i versions are kept.
	Stash Policy = "stash"
	// Vertical has a minibatch use on every stage the version that the input stage had (PipeDream §3.3, vertical sync):
	// v(t) = t-S+1.
	Vertical Policy = "vertical"
	// DoubleBuffered is PipeDream-2BW (Narayanan et al., ICML 2021): v(t) = t-1 on every stage, so that
	// w(t+1) = w(t) - lr grad f(w(t-1)), and two versions are kept.
	DoubleBuffered Policy = "2bw"
	// Elastic is AvgPipe's elastic averaging (PPoPP 2023, §3.2): several pipelines on the same workers, each with
	// weights of its own. Each is updated at its own flush, v(t) = t as under Sync, and is then pulled towards a
	// reference model. Family elastic says towards which version of it.
	Elastic Policy = "elastic"
	// ASP is asynchronous data parallelism (PipeDream §5.2): one worker holds the weights; every other one fetches the
	// newest, computes a minibatch, and has its update made at once. v(t) depends on the order in which updates
	// happened to arrive. See server.go.
	ASP Policy = "asp"
)

// rule is a policy as data. A new policy is a constant above and a row of rules.
type rule struct {
	policy Policy
	// streams: updates land without a flush, so that minibatches of a pipeline overlap.
	streams bool
	// forward chooses the version that a forward reads, among versions of its stage. own is the one that the
	// minibatch's own update will change, tag the one that the input stage had for the minibatch.
	forward func(newest, own, tag int) int
	tagged  bool // forward reads tag
	// needs says which update must come before a forward, counted back from the minibatch's own as 0: 1 is the one
	// before it. 0: none must.
	needs int
	// mismatches: a backward reads the newest version, not that of its forward.
	mismatches bool
	// accumulates: a minibatch of a stream has several micro-batches, one for each stage at least.
	accumulates bool
	// older is the most versions that a stage keeps beside the newest, however many minibatches are in flight.
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

// rule returns a policy's row, and Sync's for an unknown one, which Known tells.
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

// Known says whether a policy is one of Policies; the empty one is Sync.
func (w Policy) Known() bool { return slices.Contains(Policies(), cmp.Or(w, Sync)) }

// Flushes says whether every pipeline ends a minibatch before it begins the next. One version of its weights is
// enough then.
func (w Policy) Flushes() bool { return !w.rule().streams }

// Synchronous says whether there is one set of weights, updated at the flush.
func (w Policy) Synchronous() bool { return w.Flushes() && !w.Averages() }

// Averages says whether pipelines have weights of their own, and an iteration takes a batch for each.
func (w Policy) Averages() bool { return w.rule().updater == ElasticUpdate }

// Mismatches says whether a backward may use other weights than its forward did.
func (w Policy) Mismatches() bool { return w.rule().mismatches }

// Accumulates says whether a minibatch of a stream has several micro-batches, one for each stage at least.
func (w Policy) Accumulates() bool { return w.rule().accumulates }

// Defers says whether a family may delay an update until a forward needs it: every forward reads an older version.
func (w Policy) Defers() bool { return w.rule().needs > 1 }

// OlderVersions is how many versions a stage keeps beside the newest while inFlight minibatches are in flight.
func (w Policy) OlderVersions(inFlight int) int { return max(0, min(w.rule().older, inFlight-1)) }

// Served says whether one worker holds the weights, and the others fetch them for each minibatch.
func (w Policy) Served() bool { return w.rule().served }

// Updater is what updates weights where a Program names no other Updater.
func (w Policy) Updater() Updater { return w.rule().updater }
