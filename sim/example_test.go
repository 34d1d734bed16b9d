package sim_test

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
)

// GPipe's fill and drain: with p stages and m micro-batches of equal length, the fraction (p-1)/(m+p-1) of a step is
// idle.
func ExampleRun() {
	p, err := family.Generate("afab", schedule.Settings{Placement: schedule.Wrap(4, 1), MicroBatches: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil { // adds sends and receives
		fmt.Println(err)
		return
	}
	_, sum, err := sim.Run(p, sim.Uniform(4, 1, 2, 0), sim.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("a step of %.0f s, bubble %.4f\n", sum.StepS, sum.Bubble)
	// Output:
	// a step of 33 s, bubble 0.2727
}
