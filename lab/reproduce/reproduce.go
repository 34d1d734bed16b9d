// Package reproduce registers the experiments of the four papers.
//
// It has no input; importing it registers the experiments. Output: table.Experiments of PipeDream, DAPPLE, BaPipe and
// AvgPipe. Each has the paper's value, our value, the difference, and our value under other assumptions. Our values are
// computed from layer descriptions, described devices, planners and the simulator. Printed values of a paper are only
// shown for comparison. It trains nothing.
package reproduce

import (
	_ "github.com/millrace-ml/millrace/lab/reproduce/avgpipe"
	_ "github.com/millrace-ml/millrace/lab/reproduce/bapipe"
	_ "github.com/millrace-ml/millrace/lab/reproduce/dapple"
	_ "github.com/millrace-ml/millrace/lab/reproduce/pipedream"
	_ "github.com/millrace-ml/millrace/lab/reproduce/published"
)
