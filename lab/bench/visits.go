package bench

import "math"

// LeastRepeats is the minimal number of measurements for an interval of 95 % around their median.
const LeastRepeats = 6

// The duration of a visit in seconds, and its largest number of steps. A visit is long because a program that was
// paused has cold caches for a third of a second.
const (
	visitS    = 1.5
	mostSteps = 400
	UntilDoc  = "training steps of a visit (default: as many as take 1.5 s)"
)

// VisitSteps returns the number of steps in a visit if a step takes stepS seconds. It is at least `least`.
func VisitSteps(stepS float64, least int) int {
	return max(least, int(math.Ceil(min(visitS/stepS, mostSteps))))
}
