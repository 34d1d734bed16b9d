// Package reporting makes of a run's folder what its reports are drawn from.
//
// In: a folder.Run. Out: a report.Inputs: `train` at its end and `report` later draw the same page and say the same on
// the terminal, since both ask here. Nothing is refused: what a folder does not have is not drawn.
package reporting

import (
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
)

// Inputs is what the report of a run is drawn from.
func Inputs(r *folder.Run) report.Inputs {
	in := r.Inputs()
	in.Lags, in.Facts = lags(in.Plan), facts(r, in.Evaluations)
	return in
}
