package trace_test

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// ExampleAllGaps prints the total of each cause for which the workers of a simulated pipeline did not compute.
func ExampleAllGaps() {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Wrap(2, 1), MicroBatches: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	t, _, err := sim.Run(p, sim.Uniform(2, 1, 2, 0.5), sim.Options{Record: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for worker, gaps := range trace.AllGaps(t) {
		for cause, s := range trace.Idle(gaps) {
			fmt.Printf("worker %d: %v for %.3g s\n", worker, cause, s)
		}
	}
	// Unordered output:
	// worker 0: gradient for 5 s
	// worker 1: finished for 2.5 s
	// worker 1: input for 2.5 s
}
