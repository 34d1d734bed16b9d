package report

import (
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/trace"
)

// StepTook is a step's time in seconds, with its workers' values. Unknown values are nil.
type StepTook struct {
	Step      int
	S         float64
	BusyS     []float64
	PeakBytes []int64 // peak since the start of the run
}

// numbersOfSteps takes medians over the steps that a run reported, after the first `skip` ones. If steps overlap, it
// takes medians of means, as the report does. It returns nil if there are no steps.
func numbersOfSteps(steps []StepTook, skip, batch int, overlap bool) *Numbers {
	if steps = steps[min(skip, len(steps)):]; len(steps) == 0 {
		return nil
	}
	last := steps[len(steps)-1]
	n := &Numbers{Steps: len(steps), First: trace.StepNumber(steps[0].Step), Last: trace.StepNumber(last.Step),
		PeakBytes: last.PeakBytes}
	var took, bubbles []float64
	busy := make([][]float64, len(last.BusyS))
	for _, s := range steps {
		took, bubbles = append(took, s.S), append(bubbles, bubbleOf(s.BusyS, s.S))
		for w := range busy {
			if len(s.BusyS) != len(busy) {
				busy = nil // an older version recorded no busy times in some of the steps
				break
			}
			busy[w] = append(busy[w], s.BusyS[w])
		}
	}
	n.StepS = stats.Median(took)
	for _, b := range busy {
		n.BusyS = append(n.BusyS, min(stats.Median(b), n.StepS)) // steps of a stream overlap, so a median may be longer
	}
	if len(busy) > 0 {
		n.Bubble = stats.Median(bubbles)
	}
	if n.StepS > 0 {
		n.SamplesPerSecond = float64(batch) / n.StepS
	}
	if overlap && len(busy) > 0 {
		group := min(n.groupOf(), len(steps))
		n.inGroups(steps[len(steps)%group:], group, batch)
	}
	return n
}

// groupOf returns how many steps of a stream are averaged together.
func (n *Numbers) groupOf() int { return max(8, 2*len(n.BusyS)) }

// widen replaces the means over the few recorded steps of a stream by medians over all reported steps.
func (n *Numbers) widen(steps []StepTook, batch int) {
	group := n.groupOf()
	if steps = steps[len(steps)%group:]; len(steps) > n.Steps {
		n.inGroups(steps, group, batch)
	}
}

// inGroups divides a stream's reported steps into groups of consecutive steps, and takes the median of the groups'
// means. The mean of a group evens out steps that end in bursts, and the median ignores pauses. There are whole groups
// only.
func (n *Numbers) inGroups(steps []StepTook, group, batch int) {
	var took []float64
	busy := make([][]float64, len(n.BusyS))
	for some := range slices.Chunk(steps, group) {
		stepS, mean := 0.0, make([]float64, len(busy))
		for _, s := range some {
			if len(s.BusyS) != len(busy) {
				return // an older version reported no busy times
			}
			stepS += s.S / float64(group)
			for w := range busy {
				mean[w] += s.BusyS[w] / float64(group)
			}
		}
		took = append(took, stepS)
		for w := range busy {
			busy[w] = append(busy[w], mean[w])
		}
	}
	stepS := stats.Median(took)
	if stepS <= 0 {
		return // times too short for the clock
	}
	n.StepS, n.group, n.means = stepS, group, false
	for w := range busy {
		n.BusyS[w] = stats.Median(busy[w])
	}
	n.SamplesPerSecond, n.Bubble = float64(batch)/n.StepS, bubbleOf(n.BusyS, n.StepS)
	n.Steps, n.First, n.Last = len(steps), trace.StepNumber(steps[0].Step), trace.StepNumber(steps[len(steps)-1].Step)
}
