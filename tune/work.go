package tune

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/sim"
)

const (
	// mostSimulated bounds the instructions that one prediction plays: a minute or two of them. A step of 1,024
	// workers with 4,096 micro-batches, three times, is 75 million.
	mostSimulated = 100_000_000
	// simulatedPerSecond is how many a search counts on playing in a second.
	simulatedPerSecond = 1_000_000
	// oftenPlayed is as many steps as a question takes that asks for prediction upon prediction: ten of a step's.
	oftenPlayed = 10 * fewestSteps
	// provenAsPlayed is how many times a stream is counted: what proves that it fits together takes as long as playing it
	// so many times.
	provenAsPlayed = 8
	// surelySimulated is how many a search plays without a look at the clock.
	surelySimulated = 500_000
)

// WorkError is a plan with more micro-batches than are simulated.
type WorkError struct {
	MicroBatches, Stages int
	Instructions, Most   int64 // played in a prediction, about
}

func (e *WorkError) Error() string {
	return fmt.Sprintf("tune: %d micro-batches a step through %d stages: %d instructions to simulate, of %d at most; take larger micro-batches, or a smaller batch",
		e.MicroBatches, e.Stages, e.Instructions, e.Most)
}

// LateError is a plan that a search has no time left to simulate.
type LateError struct{ Takes, Left time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("tune: simulating the plan takes about %v, and the search has %v left", e.Takes, e.Left)
}

// instructionsOf is how many a lowered step of so many micro-batches has, about: a forward and a backward of each on
// each of its workers, and behind the first stage a transfer each way, sent and received.
func instructionsOf(micros, visits, stages int) int64 {
	n := 2 * int64(micros) * int64(visits)
	if stages > 1 {
		n *= 3
	}
	return n
}

// stepInstructions is the instructions of a plan's step.
func stepInstructions(pl *plan.Plan) int64 {
	visits := 0
	for _, st := range pl.Stages {
		if pl.Replication == "split" {
			visits += len(st.Devices)
		} else {
			visits++
		}
	}
	return instructionsOf(pl.MicroBatches, visits, len(pl.Stages)) * int64(pl.Together())
}

// checkWork refuses a plan of which so many steps are more than is simulated.
func checkWork(pl *plan.Plan, steps int) error {
	each := stepInstructions(pl)
	if each > mostSimulated/int64(steps) {
		return &WorkError{MicroBatches: pl.MicroBatches, Stages: len(pl.Stages), Instructions: each * int64(steps), Most: mostSimulated}
	}
	return nil
}

// playable says whether a shape's step is one that Simulate plays: no estimate is made of others.
func (s *search) playable(h *shape) bool {
	visits := h.stages()
	if h.split {
		visits = h.used()
	}
	return instructionsOf(s.Batch/h.size, visits, h.stages()) <= mostSimulated/fewestSteps
}

// stepsPlayed is how many steps of a plan Simulate plays where times do not vary: those of the
// step and, where memory is looked into, those of each worker behind all others.
func (s *search) stepsPlayed(pl *plan.Plan) int {
	steps := fewestSteps
	if boundsPeaks(s.Cluster, pl) {
		steps += 2 * peakSteps * len(sim.Devices(pl))
	}
	return steps
}

// late refuses a plan that would take longer to simulate than there is time, once there is an answer: with a LateError.
func (s *search) late(pl *plan.Plan) error {
	n := int64(s.stepsPlayed(pl)) * stepInstructions(pl)
	if n <= surelySimulated || s.top.plan == nil || s.deadline.IsZero() {
		return nil
	}
	takes := time.Duration(float64(n) / simulatedPerSecond * float64(time.Second))
	if left := time.Until(s.deadline); takes > left {
		return &LateError{takes, max(0, left.Round(time.Millisecond))}
	}
	return nil
}

// passOver says whether an error is of one plan's simulation only, which a search goes on without, and keeps it for
// the case that no plan is left.
func (s *search) passOver(err error) bool {
	var work *WorkError
	var late *LateError
	switch {
	case errors.As(err, &work):
		s.skipped = strings.TrimPrefix(work.Error(), "tune: ")
	case errors.As(err, &late):
		s.skipped = strings.TrimPrefix(late.Error(), "tune: ")
	default:
		return false
	}
	s.failed["shape"] = err.Error()
	return true
}
