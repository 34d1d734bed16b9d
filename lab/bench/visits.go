package bench

import "math"

// LeastRepeats is how many measurements an interval of 95 % of their median takes.
const LeastRepeats = 6

// What a visit takes by itself: what has just stood still finds its caches cold for a third of a second.
const (
	visitS    = 1.5
	mostSteps = 400
	UntilDoc  = "training steps of a visit (default: as many as take 1.5 s)"
)

// VisitSteps is how many steps that take stepS each make a visit, so many at least.
func VisitSteps(stepS float64, least int) int {
	return max(least, int(math.Ceil(min(visitS/stepS, mostSteps))))
}
