package bound

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// Proof is a bound with its source.
type Proof struct {
	StepS float64 // 0: no micro-batch size has known costs
	// MicroBatch and Split say which plans have the least bound.
	MicroBatch int
	Split      bool
	// Term is the argument that gives the bound.
	Term Term
	// Path lists stages that no argument rules out for a step slightly longer than the bound (by the bisection's
	// precision). It may be nil.
	Path []Run
}

// Term is an argument of a bound.
type Term string

// These are the arguments of a bound, with the declarations whose comments explain them.
const (
	Work   Term = "work"   // all devices compute all the time; see Step
	Stages Term = "stages" // the time of one stage or cut; see serverBound
	Way    Term = "way"    // the time of one stage plus that of a micro-batch through all other stages; see fillBound
)

// Run is one stage of a Path.
type Run struct {
	FirstLayer, LastLayer int
	Devices               int
	Spread                bool // the stage's devices are in several groups
	// Groups has the number of devices in each of the stage's groups; nil if groups are not distinguished.
	Groups []int
}

// mostEffort limits the loop iterations that refine all bounds of a Kind.
const mostEffort = 1 << 28

// effort is a budget of loop iterations. Once it is spent, nothing more is ruled out, and the proofs so far remain
// valid.
type effort struct {
	ctx     context.Context
	left    int // iterations left for all bounds
	allowed int // iterations allowed for the current bound
}

func endless() *effort { return &effort{context.Background(), math.MaxInt, math.MaxInt} }

// allow lets the current bound use 1/several of the budget that is left.
func (e *effort) allow(several int) { e.allowed = max(e.left, 0) / several }

func (e *effort) spend(steps int) { e.left, e.allowed = e.left-steps, e.allowed-steps }

func (e *effort) over() bool { return e.allowed <= 0 || e.ctx.Err() != nil }

// Prove returns the bound that Step returns, with its source.
func Prove(p *profile.Profile, c *cluster.Cluster, kind Kind) Proof {
	if all := Proofs(context.Background(), p, c, kind); len(all) > 0 {
		return all[0]
	}
	return Proof{}
}

// Proofs returns bounds for the micro-batch sizes and ways to replicate, the least first. The first one bounds all
// plans. Each size is combined with each way to replicate. A combination is left out if its cheap bound is not below
// the least bound found so far, because it cannot change the least bound.
//
// It takes at most about two seconds, so large cases get weaker bounds. If ctx ends early, it returns what is proven by
// then.
func Proofs(ctx context.Context, p *profile.Profile, c *cluster.Cluster, kind Kind) []Proof {
	var all []*bounder
	for _, m := range kind.Sizes {
		if kind.Batch%m != 0 {
			continue
		}
		for _, split := range []bool{false, true} {
			if b := newBounder(p, c, kind, m, split); b != nil {
				b.simple()
				all = append(all, b)
			}
		}
	}
	// Start with the lowest of the cheap bounds. If a low bound is found early, the other bounds need not be refined.
	slices.SortStableFunc(all, func(a, b *bounder) int { return cmp.Compare(a.proof.StepS, b.proof.StepS) })
	least, found := math.Inf(1), []Proof(nil)
	work := effort{ctx: ctx, left: mostEffort}
	for i, b := range all {
		if b.proof.StepS < least {
			work.allow(len(all) - i)
			b.effort = &work
			b.refine(least)
			least = min(least, b.proof.StepS)
			found = append(found, b.proof)
		}
	}
	slices.SortStableFunc(found, func(a, b Proof) int { return cmp.Compare(a.StepS, b.StepS) })
	return found
}

// simple applies the arguments that take little time.
func (b *bounder) simple() {
	b.proof = Proof{StepS: b.work(), MicroBatch: b.m, Split: b.split, Term: Work}
	n, W := len(b.p.Layers), b.kind.Workers
	if b.kind.Loose || b.streams() || n*W*W > maxServerStates {
		return
	}
	size := 1
	for level := range b.c.Levels {
		if level > 0 {
			size *= b.c.Levels[level-1].Size
		}
		if size >= len(b.c.Devices) {
			break
		}
		s := b.group(level, size)
		b.groups = append(b.groups, s)
		if step := greatest(b.proof.StepS, s.reached); step > b.proof.StepS {
			b.proof.StepS, b.proof.Term = step, Stages
		}
	}
}

// refine applies the expensive arguments until the bound is at least `enough`.
func (b *bounder) refine(enough float64) {
	for _, s := range b.groups {
		if b.proof.StepS >= enough || b.effort.over() {
			continue
		}
		f := s.fill()
		if f == nil {
			continue
		}
		if !math.IsInf(enough, 1) && !f.reached(enough) {
			b.proof.StepS = enough
			return
		}
		step := greatest(b.proof.StepS, f.reached)
		f.reached(step * (1 + 2*bisected))
		if b.proof.Path = f.path(); step > b.proof.StepS {
			b.proof.StepS, b.proof.Term = step, Way
		}
	}
}
