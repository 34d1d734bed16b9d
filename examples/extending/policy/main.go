// Policy prints how many versions of its weights each stage of a 1F1B-RR pipeline holds under a weight policy.
//
// In: the policy's name. Out: a number for each of three stages. main_test.go builds this program with an additional
// policy.
package main

import (
	"fmt"
	"os"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: policy NAME")
		os.Exit(2)
	}
	if err := show(schedule.Policy(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
}

func show(policy schedule.Policy) error {
	p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: schedule.Wrap(3, 1), MicroBatches: 3,
		Weights: policy, Repeat: 6})
	if err != nil {
		return err
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		return err
	}
	if _, err := check.Check(p); err != nil {
		return err
	}
	for _, h := range p.Holdings() {
		fmt.Printf("stage %d: %d versions\n", h.Stage, h.Versions)
	}
	return nil
}
