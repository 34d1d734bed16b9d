package report_test

import (
	"fmt"
	"os"

	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
)

// ExampleTerminal draws a simulated step as text, with its numbers.
func ExampleTerminal() {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Wrap(2, 1), MicroBatches: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	t, _, err := sim.Run(p, sim.Uniform(2, 1, 2, 0), sim.Options{Record: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := report.Terminal(os.Stdout, report.Inputs{Title: "1F1B", Simulated: t, Batch: 4}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1F1B · millrace
	//
	// Step
	//   predicted step 1, 15.0 s
	// worker  0 s         2           4           6           8           10          12          14
	//      0  FFFFFFFFFFFF············BBBBBBBBBBBBFFFFFFBBBBBBBBBBBBFFFFFFBBBBBBBBBBBB······BBBBBBBBBBBB
	//      1  ······FFFFFFBBBBBBBBBBBBFFFFFFBBBBBBBBBBBBFFFFFFBBBBBBBBBBBBFFFFFFBBBBBBBBBBBB············
	// F forward, B backward, · idle
	//
	// Predicted
	//                            worker  predicted
	//   step time                           15.0 s
	//   samples per second                  0.2667
	//   bubble                              20.0 %
	//   busy                     0–1        12.0 s
	//   peak memory              0             2 B
	//                            1             1 B
	//   micro-batches in flight  0               2
	//                            1               1
	//
	// Idle time, predicted: part of the step that is drawn
	// worker
	//      0  waiting for gradients 20.0 %
	//      1  waiting for activations 6.7 %, done, others still working 13.3 %
}
