package avgpipe

import (
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// Strain is the factor by which the fixed part of a micro-batch's time grows in a bad moment. That part does not depend
// on the micro-batch's size; it is mostly reading the parameters and adding to their gradients. On a shared machine,
// they may be in a cache or in memory that other programs keep busy, and this changes within seconds.
const Strain = 4

// strained returns the workload in a bad moment of the machine; see Strain.
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

// fixedPart returns the time that a layer takes for 0 samples on a device, in seconds. It extends the line through the
// times at the smallest size and at the middle size. Sizes ascend; with only one size the result is 0.
func fixedPart(costs []profile.Cost, of func(profile.Cost) float64) float64 {
	a, b := costs[0], costs[len(costs)/2]
	if b.MicroBatch <= a.MicroBatch {
		return 0
	}
	each := (of(b) - of(a)) / float64(b.MicroBatch-a.MicroBatch)
	return max(of(a)-each*float64(a.MicroBatch), 0)
}

// Nearly is the relative distance from the fastest prediction within which a setting counts as equally fast. It is
// roughly as large as the error of predictions.
const Nearly = 0.05

// steadiest considers the settings that are nearly the fastest with the profile's times. Of these it returns the one
// that is fastest in a bad moment of the machine (see Strain): a small predicted lead is not worth a large loss a
// minute later. Among settings whose strained times are about equal, it takes the one with the least memory.
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

// PassedOver returns the setting with the fastest prediction, and the steadier one that was chosen instead. ok is false
// if no setting was passed over.
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
