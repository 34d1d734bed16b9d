package avgpipe

import (
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// Strain is how many times as long the fixed part of a micro-batch's time is taken to last in a bad
// moment: what every micro-batch costs however small it is, mostly going over the parameters and
// adding to their gradients. Whether these come from a cache or from memory that others are busy
// with changes within seconds on a machine that is shared. For one model on one such machine that
// part was measured a dozen times within a day, at 0.6 to 2.8 ms.
const Strain = 4

// strained is the workload in such a moment.
func (w *Workload) strained() *Workload {
	out := *w
	out.Profile = strainedProfile(w.Profile)
	if w.Beside != nil {
		out.Beside = strainedProfile(w.Beside)
	}
	return &out
}

func strainedProfile(p *profile.Profile) *profile.Profile {
	out := *p
	out.Layers = slices.Clone(p.Layers)
	for l := range out.Layers {
		as := out.Layers[l].Costs
		costs := slices.Clone(as)
		for i, c := range as {
			own := slices.DeleteFunc(slices.Clone(as), func(o profile.Cost) bool { return o.Device != c.Device })
			costs[i] = c.Slowed(1, 1)
			for _, of := range []func(c *profile.Cost) *float64{
				func(c *profile.Cost) *float64 { return &c.ForwardS },
				func(c *profile.Cost) *float64 { return &c.BackwardS },
				func(c *profile.Cost) *float64 { return c.BareForwardS },
				func(c *profile.Cost) *float64 { return c.AgainS },
			} {
				if !slices.ContainsFunc(own, func(o profile.Cost) bool { return of(&o) == nil }) {
					*of(&costs[i]) += (Strain - 1) * fixedPart(own, func(o profile.Cost) float64 { return *of(&o) })
				}
			}
		}
		out.Layers[l].Costs = costs
	}
	return &out
}

// fixedPart is the time of a layer for no samples on a device, in seconds. It is on the line through its smallest
// size and the one in the middle; sizes rise, and one alone tells nothing.
func fixedPart(costs []profile.Cost, of func(profile.Cost) float64) float64 {
	a, b := costs[0], costs[len(costs)/2]
	if b.MicroBatch <= a.MicroBatch {
		return 0
	}
	each := (of(b) - of(a)) / float64(b.MicroBatch-a.MicroBatch)
	return max(of(a)-each*float64(a.MicroBatch), 0)
}

// Nearly is how far behind the fastest prediction a setting still counts as equally fast: about the error of
// predictions.
const Nearly = 0.05

// steadiest is, of the settings that are nearly the fastest as profiled, the one that is fastest
// strained: a prediction that is ahead by a little is not worth being behind by much a minute
// later. Of those that it cannot tell apart it is the one that holds least.
func steadiest(grid []Cell, limit int64) (Scored, error) {
	var all, bad []Scored
	for _, c := range grid {
		all = append(all, c.Simulated.Scored)
	}
	best, err := fastest(all, limit)
	if err != nil {
		return best, err
	}
	for _, c := range grid {
		if c.Simulated.StepS <= best.StepS*(1+Nearly) {
			bad = append(bad, Scored{At: c.At, StepS: c.StrainedS, MemoryBytes: c.Simulated.MemoryBytes})
		}
	}
	steady, err := frugal(bad, limit)
	if err != nil {
		return best, err
	}
	return all[slices.IndexFunc(all, func(s Scored) bool { return s.At == steady.At })], nil
}

// PassedOver is the setting that is predicted to be fastest where a steadier one was chosen that is nearly as fast.
// chosen is that one; false where they are the same.
func (r *Result) PassedOver(limit int64) (over, chosen Cell, ok bool) {
	var all []Scored
	for _, c := range r.Grid {
		if c.StrainedS == 0 {
			return over, chosen, false
		}
		all = append(all, c.Simulated.Scored)
	}
	best, err := fastest(all, limit)
	if err != nil {
		return over, chosen, false
	}
	for _, c := range r.Grid {
		switch c.At {
		case best.At:
			over = c
		case r.Best.At:
			chosen = c
		}
	}
	return over, chosen, best.At != r.Best.At && over.StrainedS > chosen.StrainedS
}
