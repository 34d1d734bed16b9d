package tune

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/plan"
)

// FixedRecompute is what is fixed for every stage; ok is false where the search decides.
func (o Overrides) FixedRecompute() (fixed plan.Recompute, ok bool, err error) {
	switch o.Recompute {
	case "", "auto":
		return plan.KeepAll, false, nil
	case "all":
		return plan.KeepInput, true, nil
	}
	fixed, err = plan.ParseRecompute(o.Recompute)
	if err != nil {
		return fixed, false, fmt.Errorf("tune: recompute is %q; it is auto, none, stage (or all), or every:K for K layers at a time", o.Recompute)
	}
	return fixed, true, nil
}

// alternatives is what one stage of so many layers may recompute. Between nothing and all of
// it at once there is every k-th layer: of n layers alike, k of them and the inputs of n/k
// runs are the least where k is the root of n (Chen et al. 2016, section 4.1).
func alternatives(layers int) []plan.Recompute {
	all := []plan.Recompute{plan.KeepAll, plan.KeepInput}
	if k := int(math.Round(math.Sqrt(float64(layers)))); k > 1 && k < layers {
		all = append(all, plan.Every(k))
	}
	return all
}
