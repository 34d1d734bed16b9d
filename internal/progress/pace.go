package progress

import "math"

// slower returns the factor by which recent pieces took longer than the whole work's mean pace predicts. The factor
// lies between 1/mostSlower and mostSlower, and is 1 if no piece can be compared. Recent pieces are the pieces of the
// last `seconds`, and the current piece if it is late. A piece is compared with the mean pace of its kind. If its kind
// has no other piece, it is compared with the mean pace of its group.
func (w *Work) slower(gone, seconds float64) float64 {
	took, expected := 0.0, 0.0
	see := func(p *piece) {
		if like := w.like(p); like > 0 {
			took, expected = took+p.seconds, expected+like
		}
	}
	if w.now != nil && !w.now.Sure && gone > w.seconds(w.now) {
		see(&piece{w.now.Kind, w.now.Group, pace{0, w.now.Cost, gone}})
	}
	for i := len(w.past) - 1; i >= 0 && took < seconds; i-- {
		see(&w.past[i])
	}
	if expected == 0 {
		return 1
	}
	return min(max(took/expected, 1/mostSlower), mostSlower)
}

// unsteady returns a factor. With a probability of 90 %, the pace of the rest differs from the pace until now by at
// most this factor. `seconds` is the duration of the rest. To find how much the pace varies, unsteady compares the
// paces of windows of equal duration in the past. It returns 1 if there are fewer than leastWindows, or if nothing is
// left.
func (w *Work) unsteady(seconds float64) float64 {
	var all pace
	var parts []pace
	for i := range w.past {
		if p, expected := &w.past[i], w.like(&w.past[i]); expected > 0 {
			parts = append(parts, pace{p.pieces, expected, p.seconds})
			all.add(parts[len(parts)-1])
		}
	}
	each := all.seconds / min(mostWindows, float64(len(parts)))
	var logs []float64
	var window pace
	for _, p := range parts {
		if window.add(p); window.seconds >= 0.999*each {
			logs, window = append(logs, math.Log(window.seconds/window.costs)), pace{}
		}
	}
	if window.seconds >= each/3 {
		logs = append(logs, math.Log(window.seconds/window.costs))
	}
	if len(logs) < leastWindows || seconds <= 0 {
		return 1
	}
	n, mean, squares := float64(len(logs)), 0.0, 0.0
	for _, l := range logs {
		mean += l / n
	}
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	t := student[min(len(logs), len(student)-1)]
	return math.Exp(t * math.Sqrt(squares/(n-1)*(1/n+each/seconds)))
}

// These constants bound the number of time windows into which the past work is divided.
const mostWindows, leastWindows = 10, 3

// student[n] is the 95 % quantile of Student's t distribution with n-1 degrees of freedom, for n windows.
var student = []float64{3: 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83}

// like returns how long a piece should have taken at the mean pace of its kind. If its kind has no other piece, like
// uses the mean pace of its group. It returns 0 if the group has no other piece either.
func (w *Work) like(p *piece) float64 {
	known := w.kinds[p.kind]
	if known == nil || known.pieces <= p.pieces {
		known = w.groups[p.group]
	}
	if known == nil || known.pieces <= p.pieces || known.costs <= 0 || known.seconds <= 0 {
		return 0
	}
	return p.costs * known.seconds / known.costs
}

// mostSlower bounds the effect of recent pieces on the estimate.
const mostSlower = 3
