package pipedream

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// fitted finds the fraction of the wires' rate at which all-reduces give the paper's value, and adds it to the row. A
// row gets no fraction unless its value is below the paper's by more than table.Near. It also gets none if 1/64 of the
// rate does not reach the paper's value. None of the four papers prints which fraction frameworks of these years
// reached. Rows can be compared by their fractions.
func fitted(r *table.Row, at func(part float64) (float64, error)) error {
	if r.Values == nil || r.Values.Ours > r.Values.Paper || math.Abs(r.Values.Ours/r.Values.Paper-1) <= table.Near {
		return nil
	}
	lo, hi := 1./64, 1. // a lower rate gives a higher value
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
