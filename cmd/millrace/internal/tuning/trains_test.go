package tuning

import (
	"os"
	"testing"

	"github.com/millrace-ml/millrace/job"
)

// TestTheCommandThatTrainsCanBeCopied: the command begins with the name by which the program was started.
func TestTheCommandThatTrainsCanBeCopied(t *testing.T) {
	before := os.Args[0]
	defer func() { os.Args[0] = before }()
	j := &job.Job{}
	j.Data.Source = "digits"
	for called, want := range map[string]string{
		"bin/millrace": "bin/millrace train --plan tune.json --data digits",
		"tuning.test":  "millrace train --plan tune.json --data digits",
	} {
		os.Args[0] = called
		if got := (&tuneFlags{output: "tune.json"}).trains(j); got != want {
			t.Errorf("called as %s: %s; want %s", called, got, want)
		}
	}
}
