package predict

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

const (
	// mostSimulated limits the instructions of one prediction: simulating that many takes a minute or two. Three steps
	// of 1,024 workers with 4,096 micro-batches have 75 million.
	mostSimulated = 100_000_000
	// mostShown limits the instructions of a stream that is simulated to be drawn.
	mostShown = 100_000
	// OftenPlayed is the number of steps to pass to CheckWork if a question needs many predictions. It is the number of
	// steps that ten predictions simulate.
	OftenPlayed = 10 * fewestSteps
	// provenAsPlayed is how many simulations of a stream take as long as the proof that the stream is consistent. For
	// CheckWork, a stream's simulated steps are multiplied by it.
	provenAsPlayed = 8
)

// WorkError says that a plan has too many instructions to simulate.
type WorkError struct {
	MicroBatches, Stages int
	Instructions, Most   int64 // in a prediction, approximately
}

func (e *WorkError) Error() string {
	return fmt.Sprintf("tune: %d micro-batches a step through %d stages: %d instructions to simulate, of %d at most; "+
		"take larger micro-batches, or a smaller batch",
		e.MicroBatches, e.Stages, e.Instructions, e.Most)
}

// instructionsOf returns the approximate number of instructions in a lowered step. Each micro-batch has a forward and a
// backward on each of its workers. With several stages there is also a transfer in each direction, sent and received.
func instructionsOf(micros, visits, stages int) int64 {
	n := 2 * int64(micros) * int64(visits)
	if stages > 1 {
		n *= 3
	}
	return n
}

// StepInstructions returns the approximate number of instructions in a plan's step.
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

// CheckWork refuses a plan if this number of its steps has too many instructions to simulate.
func CheckWork(pl *plan.Plan, steps int) error {
	each := StepInstructions(pl)
	if each > mostSimulated/int64(steps) {
		return &WorkError{MicroBatches: pl.MicroBatches, Stages: len(pl.Stages), Instructions: each * int64(steps),
			Most: mostSimulated}
	}
	return nil
}

// StepsPlayed returns how many steps Plan simulates if times do not vary. These are those of the prediction itself,
// or for a stream as many as take as long. If memory bounds are computed, each worker's bounds take further steps.
func StepsPlayed(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan) int {
	steps := fewestSteps
	if !schedule.Policy(pl.Weights).Flushes() {
		steps = streamed(pl)
	}
	if boundsPeaks(p, c, pl) {
		steps += 2 * peakSteps * len(pl.Devices())
	}
	return steps
}

// Playable says whether Plan simulates a step of this many micro-batches. `visits` is the number of workers that a
// micro-batch visits.
func Playable(micros, visits, stages int) bool {
	return instructionsOf(micros, visits, stages) <= mostSimulated/fewestSteps
}
