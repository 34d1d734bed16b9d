package curves

import (
	"fmt"
	"math"
	"slices"
)

// Point is the result of an evaluation.
type Point struct {
	Epoch    float64 `json:"epoch"` // passes over the training data so far
	Loss     float64 `json:"loss"`
	Accuracy float64 `json:"accuracy"` // fraction of test samples that are classified correctly
}

// Metric is the quantity that a training should reach.
type Metric string

// The metrics. A training improves if its loss falls or its accuracy rises.
const (
	Loss     Metric = "loss"
	Accuracy Metric = "accuracy"
)

// Of returns the metric's value at a point.
func (m Metric) Of(p Point) float64 {
	if m == Loss {
		return p.Loss
	}
	return p.Accuracy
}

// reaches reports whether a value is as good as a target.
func (m Metric) reaches(value, target float64) bool {
	if m == Loss {
		return value <= target
	}
	return value >= target
}

// EpochsTo returns how many epochs a training took to reach a target, counted as in the papers: up to the first
// evaluation that reaches the target, whatever later evaluations say. It returns false if none reaches the target.
func (m Metric) EpochsTo(points []Point, target float64) (float64, bool) {
	for _, p := range points {
		if m.reaches(m.Of(p), target) {
			return p.Epoch, true
		}
	}
	return 0, false
}

// Best returns the best value of any evaluation. It panics without points.
func (m Metric) Best(points []Point) float64 {
	best := m.Of(points[0])
	for _, p := range points[1:] {
		if m.reaches(m.Of(p), best) {
			best = m.Of(p)
		}
	}
	return best
}

// ReachedBy returns the best value that every one of several trainings reaches: the weakest of their best values. It
// considers only evaluations in the first part of a training's epochs; `part` is that fraction of the epochs.
//
// It refuses an empty list, and a training without evaluations in that part.
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

// Spread is the mean and the range of values at an epoch.
type Spread struct {
	Epoch        float64
	Mean, Lo, Hi float64
	Of           int // number of trainings
}

// Spreads returns the mean and the range of several trainings at the epochs of the longest one. A training whose loss
// became NaN is included only in the epochs before that.
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

// Efficiency says how many epochs the trainings of one method took to reach a target.
type Efficiency struct {
	Epochs   []float64 // of the trainings that reached the target, in their order
	Missed   int       // number of trainings that did not reach the target
	Diverged int       // number of trainings whose loss became NaN or infinite
	Mean     float64   // of Epochs; 0 if there are none
	Lo, Hi   float64
	Best     float64 // mean of the trainings' best values
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
