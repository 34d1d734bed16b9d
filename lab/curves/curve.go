package curves

import (
	"fmt"
	"math"
	"slices"
)

// Point is what an evaluation found.
type Point struct {
	Epoch    float64 `json:"epoch"` // passes over the training data before it
	Loss     float64 `json:"loss"`
	Accuracy float64 `json:"accuracy"` // part of the test samples told right
}

// Metric is what a training is to reach.
type Metric string

// The metrics. A loss is reached from above, an accuracy from below.
const (
	Loss     Metric = "loss"
	Accuracy Metric = "accuracy"
)

// Of is the metric's value at a point.
func (m Metric) Of(p Point) float64 {
	if m == Loss {
		return p.Loss
	}
	return p.Accuracy
}

// reaches says whether a value is as good as a target.
func (m Metric) reaches(value, target float64) bool {
	if m == Loss {
		return value <= target
	}
	return value >= target
}

// EpochsTo is how many epochs a training took to a target: those before the first evaluation
// that reaches it, however others after it turn out, which is how the papers count. False where
// none does.
func (m Metric) EpochsTo(points []Point, target float64) (float64, bool) {
	for _, p := range points {
		if m.reaches(m.Of(p), target) {
			return p.Epoch, true
		}
	}
	return 0, false
}

// Best is the best value of a training, of any evaluation. It panics without points.
func (m Metric) Best(points []Point) float64 {
	best := m.Of(points[0])
	for _, p := range points[1:] {
		if m.reaches(m.Of(p), best) {
			best = m.Of(p)
		}
	}
	return best
}

// ReachedBy is the best value that every one of several trainings reaches: the weakest of their bests. Evaluations
// of the first part of their epochs count.
//
// It refuses no trainings, and one without evaluations in that part.
func (m Metric) ReachedBy(trainings [][]Point, part float64) (float64, error) {
	var bests []float64
	for _, points := range trainings {
		if len(points) == 0 {
			return 0, fmt.Errorf("curves: a training without evaluations")
		}
		last := points[len(points)-1].Epoch
		early := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Epoch > part*last })
		if len(early) == 0 {
			return 0, fmt.Errorf("curves: no evaluation in the first %g of %g epochs", part*last, last)
		}
		bests = append(bests, m.Best(early))
	}
	switch {
	case len(bests) == 0:
		return 0, fmt.Errorf("curves: no training to take a target from")
	case m == Loss:
		return slices.Max(bests), nil
	}
	return slices.Min(bests), nil
}

// Spread is the mean of values at an epoch, and from where to where they go.
type Spread struct {
	Epoch        float64
	Mean, Lo, Hi float64
	Of           int // trainings
}

// Spreads is the mean and the range of several trainings at the epochs of the longest of them. One that ended
// early, because its loss was no number any more, counts as far as it came.
func (m Metric) Spreads(trainings [][]Point) []Spread {
	var longest []Point
	for _, points := range trainings {
		if len(points) > len(longest) {
			longest = points
		}
	}
	var out []Spread
	for i, at := range longest {
		s := Spread{Epoch: at.Epoch, Lo: math.Inf(1), Hi: math.Inf(-1)}
		for _, points := range trainings {
			if i >= len(points) || points[i].Epoch != at.Epoch {
				continue
			}
			v := m.Of(points[i])
			s.Mean, s.Lo, s.Hi, s.Of = s.Mean+v, min(s.Lo, v), max(s.Hi, v), s.Of+1
		}
		s.Mean /= float64(s.Of)
		out = append(out, s)
	}
	return out
}

// Efficiency is how many epochs the trainings of one method took to a target.
type Efficiency struct {
	Epochs   []float64 // of those that reached it, in the order of the trainings
	Missed   int       // that did not
	Diverged int       // of those missed, whose loss was no number any more
	Mean     float64   // of Epochs; 0 without any
	Lo, Hi   float64
	Best     float64 // mean of the best values
}

// Efficiency counts the epochs of several trainings of one method.
func (m Metric) Efficiency(trainings []Training, target float64) Efficiency {
	var e Efficiency
	best, ended := 0.0, 0
	for _, t := range trainings {
		if t.Diverged != "" {
			e.Diverged++
		}
		if len(t.Points) > 0 {
			best, ended = best+m.Best(t.Points), ended+1
		}
		epochs, ok := m.EpochsTo(t.Points, target)
		if !ok {
			e.Missed++
			continue
		}
		e.Epochs = append(e.Epochs, epochs)
		e.Mean += epochs
	}
	if n := len(e.Epochs); n > 0 {
		e.Mean, e.Lo, e.Hi = e.Mean/float64(n), slices.Min(e.Epochs), slices.Max(e.Epochs)
	}
	if ended > 0 {
		e.Best = best / float64(ended)
	}
	return e
}
