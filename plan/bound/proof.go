package bound

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
)

// Proof is a bound and where it comes from.
type Proof struct {
	StepS float64 // 0: nothing is known of any size
	// MicroBatch and Split are of the plans that it is least for.
	MicroBatch int
	Split      bool
	// Term is the argument that gives it.
	Term Term
	// Path is stages that no argument rules out in a step that is longer by the bisection's last part; nil where Term is
	// Work.
	Path []Run
}

// Term is an argument of a bound.
type Term string

// The arguments, by where the package explains them.
const (
	Work   Term = "work"   // all devices compute all the time
	Stages Term = "stages" // what one stage or cut takes: serverBound
	Way    Term = "way"    // a micro-batch's way through all stages beside it: fillBound
)

// Run is a stage of what a bound cannot rule out.
type Run struct {
	FirstLayer, LastLayer int
	Devices               int
	Spread                bool // over several groups of devices
	// Groups is how many devices it has in each of its groups; nil where nobody tells groups apart.
	Groups []int
}

// mostEffort bounds the steps of the loops that refine all bounds of a kind.
const mostEffort = 1 << 28

// effort is what may still be spent. Once it is, nothing more is ruled out, so that what was proven before stands.
type effort struct {
	ctx     context.Context
	left    int // of all
	allowed int // of one
}

func endless() *effort { return &effort{context.Background(), math.MaxInt, math.MaxInt} }

// allow grants one of several that are left its part.
func (e *effort) allow(several int) { e.allowed = max(e.left, 0) / several }

func (e *effort) spend(steps int) { e.left, e.allowed = e.left-steps, e.allowed-steps }

func (e *effort) over() bool { return e.allowed <= 0 || e.ctx.Err() != nil }

// Prove is Step with where it comes from.
func Prove(p *profile.Profile, c *cluster.Cluster, kind Kind) Proof {
	if all := Proofs(context.Background(), p, c, kind); len(all) > 0 {
		return all[0]
	}
	return Proof{}
}

// Proofs are bounds for the sizes and ways to replicate that come out lowest, the least first: that one is a bound of
// all plans. Others are not proven further than that they are no less.
//
// It takes a second or two at most, in which large cases are proven less far, and ends when the context does with what
// is proven by then.
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
	// What comes out low by the arguments that take little time comes first: it spares others the long ones.
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

// simple proves what takes little time.
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

// refine proves what takes longer, unless that is no less than enough.
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
