package bench

import "github.com/millrace-ml/millrace/trace"

// BusyOfStep returns each worker's computing time in a step, averaged over the last steps.
func BusyOfStep(so *trace.Timeline, steps int) []float64 {
	all := so.StepBusy()
	all = all[max(0, len(all)-steps):]
	mean := make([]float64, so.Workers)
	for _, step := range all {
		for w, s := range step {
			mean[w] += s / float64(len(all))
		}
	}
	return mean
}

// SessionKeeps is the number of steps per visit whose events a session keeps.
const SessionKeeps = 16

// BusyShare returns the fraction of the workers' time in which they computed, over the last steps. The time begins at
// the end of the first of these steps, because steps of a stream overlap. If there is a stream of S stages, its last S
// steps are left out, because later stages run out of work in them.
func BusyShare(so *trace.Timeline, steps int) float64 {
	marks := so.Steps[max(0, len(so.Steps)-steps):]
	if so.Stream {
		marks = marks[:max(0, len(marks)-so.Stages)]
	}
	if len(marks) < 2 {
		return 0
	}
	from, to := marks[0].EndS, marks[len(marks)-1].EndS
	busy := 0.0
	for _, s := range so.Busy(from, to) {
		busy += s
	}
	return busy / (to - from) / float64(so.Workers)
}
