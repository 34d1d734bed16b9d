package tune

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
)

// LateError is a plan that a search has no time left to simulate.
type LateError struct{ Takes, Left time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("tune: simulating the plan takes about %v, and the search has %v left", e.Takes, e.Left)
}

const (
	// simulatedPerSecond is how many instructions a search counts on playing in a second.
	simulatedPerSecond = 1_000_000
	// surelySimulated is how many it plays without a look at the clock.
	surelySimulated = 500_000
)

// late refuses a plan that would take longer to simulate than there is time, once there is an answer: with a LateError.
func (s *search) late(pl *plan.Plan) error {
	n := int64(predict.StepsPlayed(s.Cluster, pl)) * predict.StepInstructions(pl)
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
	var work *predict.WorkError
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
