package predict

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

const (
	// mostSimulated bounds the instructions that one prediction plays: a minute or two of them. A step of 1,024
	// workers with 4,096 micro-batches, three times, is 75 million.
	mostSimulated = 100_000_000
	// OftenPlayed is as many steps as a question takes that asks for prediction upon prediction: ten
	// of a step's.
	OftenPlayed = 10 * fewestSteps
	// provenAsPlayed is how many times a stream is counted: what proves that it fits together takes as
	// long as playing it so many times.
	provenAsPlayed = 8
)

// WorkError is a plan with more micro-batches than are simulated.
type WorkError struct {
	MicroBatches, Stages int
	Instructions, Most   int64 // played in a prediction, about
}

func (e *WorkError) Error() string {
	return fmt.Sprintf("tune: %d micro-batches a step through %d stages: %d instructions to simulate, of %d at most; "+
		"take larger micro-batches, or a smaller batch",
		e.MicroBatches, e.Stages, e.Instructions, e.Most)
}

// instructionsOf is how many a lowered step of so many micro-batches has, about: a forward and a
// backward of each on each of its workers, and behind the first stage a transfer each way, sent and
// received.
func instructionsOf(micros, visits, stages int) int64 {
	n := 2 * int64(micros) * int64(visits)
	if stages > 1 {
		n *= 3
	}
	return n
}

// StepInstructions is the instructions of a plan's step.
func StepInstructions(pl *plan.Plan) int64 {
	visits := 0
	for _, st := range pl.Stages {
		if pl.Replication == string(schedule.Split) {
			visits += len(st.Devices)
		} else {
			visits++
		}
	}
	return instructionsOf(pl.MicroBatches, visits, len(pl.Stages)) * int64(pl.Together())
}

// CheckWork refuses a plan whose steps are too many instructions to simulate.
func CheckWork(pl *plan.Plan, steps int) error {
	each := StepInstructions(pl)
	if each > mostSimulated/int64(steps) {
		return &WorkError{MicroBatches: pl.MicroBatches, Stages: len(pl.Stages), Instructions: each * int64(steps),
			Most: mostSimulated}
	}
	return nil
}

// StepsPlayed is how many steps of a plan Plan plays where times do not vary: those of the
// step and, where memory is looked into, those of each worker behind all others.
func StepsPlayed(c *cluster.Cluster, pl *plan.Plan) int {
	steps := fewestSteps
	if boundsPeaks(c, pl) {
		steps += 2 * peakSteps * len(pl.Devices())
	}
	return steps
}

// Playable says whether a step of so many micro-batches is one that Plan plays; visits are the workers that a
// micro-batch passes.
func Playable(micros, visits, stages int) bool {
	return instructionsOf(micros, visits, stages) <= mostSimulated/fewestSteps
}
