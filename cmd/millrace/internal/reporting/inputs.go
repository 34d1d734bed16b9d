// Package reporting prepares the contents of a run's folder for its reports.
//
// In: a folder.Run. Out: a report.Inputs. Both `train` at its end and `report` later use it, so that they draw the same
// page and print the same text. Nothing is refused: data that is missing in the folder is not drawn.
package reporting

import (
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
)

// Inputs returns the data from which the report of a run is drawn.
func Inputs(r *folder.Run) report.Inputs {
	in := r.Inputs()
	in.Lags, in.Facts = lags(in.Plan), facts(r, in.Evaluations)
	return in
}
