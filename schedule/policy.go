package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Policy is the weight policy a Program carries: which version of the weights
// a forward and its backward use, and when updates land. It is orthogonal to
// the order of instructions.
//
// The version of a stage is how many updates it has had. Write t for a minibatch, M for
// its micro-batches, v(t) for the version that its forward uses on a stage.
type Policy string

// The policies. All but Sync and Elastic belong to orders without a flush.
const (
	// Sync updates once per flush: every micro-batch of a step sees the same weights, v(t) = t.
	Sync Policy = "sync"
	// Latest uses what is there, in the backward too, which then may not match its
	// forward: the negative control.
	Latest Policy = "latest"
	// Stash uses what is there in the forward and the same in its backward (PipeDream
	// §3.3, weight stashing). On stage i of S, counted from 0, of a straight pipeline
	// v(t) = t-(S-i)+1, so that S-i versions are held.
	Stash Policy = "stash"
	// Vertical has a minibatch use on every stage the version that the input stage had (PipeDream §3.3, vertical sync):
	// v(t) = t-S+1.
	Vertical Policy = "vertical"
	// DoubleBuffered is PipeDream-2BW (Narayanan et al., ICML 2021): v(t) = t-1, the first
	// minibatch at 0, so that w(t+1) = w(t) - lr grad f(w(t-1)) and two versions are enough.
	DoubleBuffered Policy = "2bw"
	// Elastic is AvgPipe's (PPoPP 2023, §3.2): several pipelines with weights of their own over
	// the same workers, each updated at its own flush, v(t) = t as under Sync, and diluted with a
	// reference model then. Family elastic says which version of the reference that is.
	Elastic Policy = "elastic"
	// ASP is asynchronous data parallelism (PipeDream §5.2): one worker holds the weights, every other one takes
	// the newest there are, computes a minibatch and has its update made at once. v(t) is how many updates had
	// been made by then, in the order that happened. See server.go.
	ASP Policy = "asp"
)

// rule is what a policy is: which version each instruction reads, and what its updates change the weights
// with.
type rule struct {
	policy Policy
	// streams: updates land without a flush, so that minibatches of a pipeline overlap.
	streams bool
	// forward is the version that a forward reads: of those there are the newest, what the minibatch's own
	// update starts from, or by the tag that it got on the input stage. All count updates of the forward's
	// stage.
	forward func(newest, own, tag int) int
	tagged  bool // a minibatch has a tag: Vertical
	// needs says which version a forward must find: that of its own update is 1, the one before 2, and so on; 0: it
	// takes what is there.
	needs int
	// mismatches: a backward reads the newest version, and not that of its forward.
	mismatches bool
	// accumulates: a minibatch of a stream has several micro-batches, one for each stage at least.
	accumulates bool
	// older is the most versions beside the newest that a stage keeps, however many minibatches are in flight.
	older   int
	updater Updater
	// served: one worker holds the weights, and the others fetch them for each minibatch.
	served bool
}

func whatIsThere(newest, _, _ int) int { return newest }

// rules is the policies, as values.
var rules = []rule{
	{policy: Sync, forward: whatIsThere, needs: 1, updater: PlainUpdate},
	{policy: Latest, streams: true, forward: whatIsThere, mismatches: true, updater: PlainUpdate},
	{policy: Stash, streams: true, forward: whatIsThere, older: math.MaxInt, updater: PlainUpdate},
	{policy: Vertical, streams: true, forward: func(_, _, tag int) int { return tag }, tagged: true,
		older: math.MaxInt, updater: PlainUpdate},
	{policy: DoubleBuffered, streams: true, forward: func(_, own, _ int) int { return max(0, own-1) }, needs: 2,
		accumulates: true, older: 1, updater: PlainUpdate},
	{policy: Elastic, forward: whatIsThere, needs: 1, updater: ElasticUpdate},
	{policy: ASP, streams: true, forward: whatIsThere, updater: PlainUpdate, served: true},
}

// rule is a policy's; of one that is not known that of Sync.
func (w Policy) rule() *rule {
	for i := range rules {
		if rules[i].policy == w {
			return &rules[i]
		}
	}
	return &rules[0]
}

// Policies lists all of them.
func Policies() []Policy {
	var all []Policy
	for _, r := range rules {
		all = append(all, r.policy)
	}
	return all
}

// Known says whether a policy is one of ours.
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

// Defers says whether a family may put updates off until a forward needs them: every forward needs an older
// one.
func (w Policy) Defers() bool { return w.rule().needs > 1 }

// OlderVersions is how many versions of its weights beside the newest a stage keeps for so many minibatches
// in flight.
func (w Policy) OlderVersions(inFlight int) int { return max(0, min(w.rule().older, inFlight-1)) }

// Served says whether one worker holds the weights, and the others fetch them for each minibatch.
func (w Policy) Served() bool { return w.rule().served }

// Updater is the Updater of a policy whose Program does not name another.
func (w Policy) Updater() Updater { return w.rule().updater }

// Needs is the update that must stand in front of a forward, false where it takes what is there. What
// Vertical needs is known only with all lists at hand.
func (p *Program) Needs(f Instruction) (u Instruction, needs bool) {
	back, g := int32(p.Weights.rule().needs), int32(p.UpdateSpan(int(f.Pipeline), int(f.Stage)))
	before := (f.Micro/g-back)*g + g - 1
	if back == 0 || before < 0 {
		return Instruction{}, false
	}
	u = f.As(U)
	u.Micro = p.UpdateOf(int(f.Pipeline), int(f.Stage), before)
	return u, true
}

// Streams says whether updates land without a flush, so that minibatches of a pipeline overlap.
func (p *Program) Streams() bool { return !p.Weights.Flushes() }

// Overlaps says whether a minibatch begins before the one in front of it has ended: of a stream,
// and of pipelines that work in each other's bubbles.
func (p *Program) Overlaps() bool { return p.Streams() || p.HasReference() }

// PerMinibatch is the micro-batches of a minibatch.
func (p *Program) PerMinibatch() int { return max(1, p.MicroBatches/max(1, p.Period)) }

// UpdateSpan is how many micro-batches in a row one update of a stage covers. Where pipelines flush, and
// where a minibatch has several micro-batches, it is a minibatch. Where it has one, a
// stage of r round-robin replicas updates once for r minibatches with their mean; one that is served (ASP) once
// for each.
func (p *Program) UpdateSpan(pipeline, stage int) int {
	per := p.PerMinibatch()
	if r := len(p.Placement[pipeline][stage]); p.Streams() && per == 1 && p.Replication == RoundRobin && !p.Served() {
		return r
	}
	return per
}

// StopUnit is the minibatches by whose multiples a Program may be cut short: the body's, and whole groups of
// those that one update of a stage covers.
func (p *Program) StopUnit() int {
	per, unit := p.PerMinibatch(), max(1, p.Period)
	for pl, stages := range p.Placement {
		for s := range stages {
			unit = LeastCommonMultiple(unit, max(1, p.UpdateSpan(pl, s)/per))
			if unit > MaxMicro {
				return MaxMicro // it has no more minibatches
			}
		}
	}
	return unit
}

// LeastCommonMultiple is that of two numbers over 0.
func LeastCommonMultiple(a, b int) int {
	g, rest := a, b
	for rest != 0 {
		g, rest = rest, g%rest
	}
	return a / g * b
}

// UpdateOf is the number of the update that takes a micro-batch's gradient: the last
// minibatch of its group, which at the end of a stream may be one that never comes.
func (p *Program) UpdateOf(pipeline, stage int, micro int32) int32 {
	g := int32(p.UpdateSpan(pipeline, stage))
	return ((micro/g+1)*g - 1) / int32(p.PerMinibatch())
}

// Use is an instruction of a worker with the version of its stage's weights. F, B, I, W and EV read the version, and
// U makes it. Version 0 is before any update.
type Use struct {
	Instruction Instruction // with absolute ids
	Version     int
	// Frees is the version that nothing uses any more once the instruction has ended,
	// -1 for none. An update that frees the version before its own may work in place.
	Frees int
	At    int // position in the worker's walk
}

// entries is, by micro-batch, how many micro-batches' gradients are in the input stage's
// weights when its forward begins: the tag that Vertical sends along.
func (p *Program) entries(pipeline int) map[int32]int {
	tags := map[int32]int{}
	g := p.UpdateSpan(pipeline, 0)
	for _, w := range p.Placement[pipeline][0] {
		updates := 0
		p.Walk(w, func(in Instruction) bool {
			if int(in.Pipeline) != pipeline || in.Stage != 0 {
				return true
			}
			switch in.Kind {
			case U:
				updates++
			case F:
				tags[in.Micro] = updates * g
			}
			return true
		})
	}
	return tags
}

// Uses is every F, B, I, W, EV and U of a worker in the order of its list. It needs a
// lowered Program that passes check.Check.
func (p *Program) Uses(worker int) []Use {
	type version struct {
		pipeline int16
		stage    int32
		number   int
	}
	uses := p.uses(worker)
	last, replaced := map[version]int{}, map[version]int{}
	for i, u := range uses {
		v := version{u.Instruction.Pipeline, u.Instruction.Stage, u.Version}
		if u.Instruction.Kind == U {
			v.number--
			replaced[v] = i
			continue
		}
		last[v] = i
	}
	for v, by := range replaced {
		gone := by
		if l, ok := last[v]; ok && l > by {
			gone = l
		}
		uses[gone].Frees = v.number
	}
	return uses
}

// uses is Uses without what they free.
func (p *Program) uses(worker int) []Use {
	type place struct {
		pipeline int16
		stage    int32
	}
	current := map[place]int{}
	forward := map[Instruction]int{}
	tags := map[int16]map[int32]int{}
	rule := p.Weights.rule()
	if rule.tagged {
		for pl := range p.Placement {
			tags[int16(pl)] = p.entries(pl)
		}
	}
	var out []Use
	at := -1
	p.Walk(worker, func(in Instruction) bool {
		at++
		here := place{in.Pipeline, in.Stage}
		version := current[here]
		switch in.Kind {
		case F:
			g := p.UpdateSpan(int(in.Pipeline), int(in.Stage))
			version = rule.forward(version, int(in.Micro)/g, tags[in.Pipeline][in.Micro]/g)
			forward[in] = version
		case B, I, W:
			if v, ok := forward[in.As(F)]; ok && !rule.mismatches {
				version = v
			}
		case U:
			current[here]++
			version++
		case EV:
		default:
			return true
		}
		out = append(out, Use{Instruction: in, Version: version, Frees: -1, At: at})
		return true
	})
	return out
}

// Copies is the change in the copies of weights that a worker keeps, by instruction with absolute ids. The change
// comes as the instruction ends; an instruction that changes nothing is not in it. An update adds one, and takes
// away the version it replaces if nobody will use it any more; otherwise that goes with the last backward that uses
// it (PipeDream §4).
func (p *Program) Copies(worker int) map[Instruction]int {
	change := map[Instruction]int{}
	for _, u := range p.Uses(worker) {
		by := 0
		if u.Instruction.Kind == U {
			by++
		}
		if u.Frees >= 0 {
			by--
		}
		if by != 0 {
			change[u.Instruction] = by
		}
	}
	return change
}

// MostCopies is the most copies of weights that a worker ever keeps. Before the first update it has one for each
// stage it holds.
func (p *Program) MostCopies(worker int) int {
	now := len(p.StagesOf(worker))
	most := now
	change := p.Copies(worker)
	p.Walk(worker, func(in Instruction) bool {
		now += change[in]
		most = max(most, now)
		return true
	})
	return most
}

// Minibatches is how many minibatches the Program trains on.
func (p *Program) Minibatches() int {
	per := p.PerMinibatch()
	return (int(p.StreamEnd()) + per - 1) / per
}

// Covers is the minibatches, end left out, whose gradients an update takes, or a collective in front of it:
// one; in a stream with one micro-batch each as many as its stage has replicas, and at the
// stream's end those that are left. minibatches is how many the Program has.
func (p *Program) Covers(update Instruction, minibatches int) (first, end int) {
	per := p.PerMinibatch()
	first = max(0, (int(update.Micro)+1)*per-p.UpdateSpan(int(update.Pipeline), int(update.Stage))) / per
	return first, min(int(update.Micro)+1, minibatches)
}

// StreamEnd is one more than the last micro-batch that is trained on.
func (p *Program) StreamEnd() int32 {
	end := int32(0)
	for i, part := range []Part{p.Prologue, p.Body, p.Epilogue} {
		repeats := []int{0, max(0, p.Repeat-1), p.Repeat}[i]
		if i == 1 && p.Repeat == 0 {
			continue
		}
		for _, list := range part {
			for _, in := range list {
				if in.Kind == F {
					end = max(end, in.Micro+1+int32(repeats*p.MicroBatches))
				}
			}
		}
	}
	return end
}
