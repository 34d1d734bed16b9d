package extending_test

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
)

// begin: schedule
func init() {
	family.Register(family.Family{
		Name: "pairs", Doc: "two forwards, then their two backwards: twice 1F1B's messages at once, two micro-batches held",
		Admits: func(s schedule.Settings) error {
			if s.MicroBatches%2 != 0 {
				return fmt.Errorf("%d micro-batches; this order takes them two at a time", s.MicroBatches)
			}
			for stage, workers := range s.Placement {
				if len(workers) != 1 {
					return fmt.Errorf("stage %d is on %d workers; this order knows no replicas", stage, len(workers))
				}
			}
			return nil
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			p := s.Program()
			for stage, workers := range s.Placement {
				w := workers[0]
				for first := 0; first < s.MicroBatches; first += 2 {
					for _, kind := range []schedule.Kind{schedule.F, schedule.B} {
						for micro := first; micro < first+2; micro++ {
							p.Body[w] = append(p.Body[w], schedule.Instruction{
								Stage: int32(stage), Kind: kind, Micro: int32(micro),
							})
						}
					}
				}
			}
			return p, nil
		},
	})
}

// end: schedule

// A registered family is drawn, planned for, simulated and trained like any other.
func Example_schedule() {
	p, err := family.Generate("pairs", schedule.Settings{Placement: schedule.Wrap(2, 1), MicroBatches: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("worker 0:", p.Body[0])
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	report, err := check.Check(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, sum, err := sim.Run(p, sim.Uniform(2, 1, 2, 0), sim.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held at most:", report.PeakActivations)
	fmt.Printf("a step of %.0f, bubble %.1f %%\n", sum.StepS, 100*sum.Bubble)
	// Output:
	// worker 0: [0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3]
	// held at most: [2 2]
	// a step of 18, bubble 33.3 %
}
