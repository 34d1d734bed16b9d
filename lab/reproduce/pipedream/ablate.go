package pipedream

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// fitted adds to the row the fraction of the wires' rate at which all-reduces would lead to the paper's value. It adds
// nothing if our value is at most table.Near below the paper's, or if even 1/64 of the rate does not raise it to the
// paper's. None of the four papers prints the fraction that frameworks of its time reached.
func fitted(r *table.Row, at func(part float64) (float64, error)) error {
	if r.Values == nil || r.Values.Ours > r.Values.Paper || math.Abs(r.Values.Ours/r.Values.Paper-1) <= table.Near {
		return nil
	}
	lo, hi := 1./64, 1. // the lower the rate, the higher the value
	v, err := at(lo)
	if err != nil || v < r.Values.Paper {
		return err
	}
	for range 40 {
		mid := math.Sqrt(lo * hi)
		if v, err = at(mid); err != nil {
			return err
		}
		if v > r.Values.Paper {
			lo = mid
		} else {
			hi = mid
		}
	}
	if v, err = at(hi); err == nil {
		r.Ablate(fmt.Sprintf("all-reduces at %.2f of the wires' rate", hi), v, "%.2f")
	}
	return err
}
