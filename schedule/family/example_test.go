package family_test

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
)

// A family generates its Program for a number of stages and micro-batches, and Check proves that it runs to its end.
func ExampleGenerate() {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Wrap(2, 1), MicroBatches: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := check.Check(p); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p.Text())
	// Output:
	// millrace program 1
	// name 1f1b
	// stages 2
	// workers 2
	// micro_batches 4
	// period 1
	// repeat 1
	// weights sync
	// replication round_robin
	// lowered false
	// place p0/0: 0
	// place p0/1: 1
	// body
	// 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
	// 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
}
