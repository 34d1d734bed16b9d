// Package reproduce has the experiments of the four papers.
//
// In: nothing; importing it registers them. Out: table.Experiments of PipeDream, DAPPLE, BaPipe and AvgPipe, each with
// the paper's value, ours, the difference, and our value where an assumption is another. Ours is computed from layer
// descriptions, described devices, planners and the simulator; what a paper printed is read only to be shown beside it.
// It trains nothing.
package reproduce

import (
	_ "github.com/millrace-ml/millrace/lab/reproduce/avgpipe"
	_ "github.com/millrace-ml/millrace/lab/reproduce/bapipe"
	_ "github.com/millrace-ml/millrace/lab/reproduce/dapple"
	_ "github.com/millrace-ml/millrace/lab/reproduce/pipedream"
	_ "github.com/millrace-ml/millrace/lab/reproduce/published"
)
