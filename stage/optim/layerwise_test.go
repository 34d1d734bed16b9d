package optim

import (
	"math"
	"runtime"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// larsTwin is Algorithm 1 of You, Gitman and Ginsburg (2017), written for one layer.
type larsTwin struct{ v []float64 }

func (w *larsTwin) step(s Settings, rate float64, p, g []float64, noDecay bool) {
	var ofP, ofG float64
	for i := range p {
		ofP += p[i] * p[i]
		ofG += g[i] * g[i]
	}
	local, beta := 1.0, 0.0
	if !noDecay {
		beta = s.WeightDecay
		if ofP > 0 && ofG > 0 {
			local = s.Trust * math.Sqrt(ofP) / (math.Sqrt(ofG) + beta*math.Sqrt(ofP))
		}
	}
	for i := range p {
		w.v[i] = s.Momentum*w.v[i] + rate*local*(g[i]+beta*p[i])
		p[i] -= w.v[i]
	}
}

// stepped makes five updates with different gradients. After each update it calls the function `seen` with the
// parameter and its states.
func stepped(t *testing.T, s Settings, first []float64, noDecay bool, seen func(
	count int, rate float64, grads, param []float64, states [][]float64)) {
	t.Helper()
	runtime.LockOSThread()
	e := testEngine(t)
	dev, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	slot := Slot{Param: tensor(t, e, dev, first), NoDecay: noDecay}
	for range s.States() {
		slot.State = append(slot.State, tensor(t, e, dev, make([]float64, len(first))))
	}
	for count := 1; count <= 5; count++ {
		step := Step{Rate: 0.2 / float64(count), GradScale: []float64{1, 0.5}[count%2]}
		given, scaled := make([]float64, len(first)), make([]float64, len(first))
		for i, p := range numbers(t, dev, slot.Param) {
			given[i] = p*p - float64(i)*0.3 + 0.1
			scaled[i] = given[i] * step.GradScale
		}
		slot.Grad, slot.Count = tensor(t, e, dev, given), count
		if err := s.Apply(dev, step, []Slot{slot}); err != nil {
			t.Fatal(err)
		}
		slot.Grad.Free()
		var states [][]float64
		for _, x := range slot.State {
			states = append(states, numbers(t, dev, x))
		}
		seen(count, step.Rate, scaled, numbers(t, dev, slot.Param), states)
	}
	for _, x := range append([]engine.Tensor{slot.Param}, slot.State...) {
		x.Free()
	}
	if n := dev.Close(); n != 0 {
		t.Errorf("%d handles leaked", n)
	}
}

func TestLARSIsThePapers(t *testing.T) {
	for _, s := range []Settings{
		{Kind: LARS, Trust: 0.02, Momentum: 0.9, WeightDecay: 5e-4}, {Kind: LARS, Trust: 1, WeightDecay: 0.3},
		{Kind: LARS, Trust: 0.5, Momentum: 0.5},
	} {
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for _, first := range [][]float64{{1, -2, 0.5, 0}, {0, 0, 0}} { // the norm of the zeros must not be a divisor
			for _, noDecay := range []bool{false, true} {
				p, twin := append([]float64{}, first...), larsTwin{make([]float64, len(first))}
				stepped(t, s, first, noDecay, func(count int, rate float64, grads, got []float64, _ [][]float64) {
					twin.step(s, rate, p, grads, noDecay)
					for i := range p {
						if math.Abs(got[i]-p[i]) > 1e-12 {
							t.Errorf("%+v: no decay %v: update %d: parameter %d is %v; want %v", s, noDecay, count, i, got[i], p[i])
						}
					}
				})
			}
		}
	}
}

// Without decay or momentum, the length of a LARS step is rate * trust * (the weight's norm). It does not depend on the
// gradient's size.
func TestLARSStepsAreAsLongAsTrustSays(t *testing.T) {
	s, before := Settings{Kind: LARS, Trust: 0.1}, []float64{3, -4, 12} // the norm of `before` is 13
	stepped(t, s, before, false, func(_ int, rate float64, _, after []float64, _ [][]float64) {
		var moved, norm float64
		for i := range after {
			moved += (after[i] - before[i]) * (after[i] - before[i])
			norm += before[i] * before[i]
		}
		if got, want := math.Sqrt(moved), rate*0.1*math.Sqrt(norm); math.Abs(got-want) > 1e-12 {
			t.Errorf("a step of length %v; want %v", got, want)
		}
		before = after
	})
}

func TestASGDAveragesWhatUpdatesLeft(t *testing.T) {
	for _, from := range []int{1, 3, 9} {
		s := Settings{Kind: ASGD, AverageFrom: from, WeightDecay: 0.01}
		plain, first := Settings{Kind: SGD, WeightDecay: 0.01}, []float64{1, -2, 0.5, 0}
		var alone [][]float64
		stepped(t, plain, first, false, func(_ int, _ float64, _, p []float64, _ [][]float64) { alone = append(alone, p) })
		stepped(t, s, first, false, func(count int, _ float64, _, p []float64, states [][]float64) {
			averaged := alone[min(from, count)-1 : count]
			for i := range p {
				if p[i] != alone[count-1][i] {
					t.Errorf("from %d: update %d: parameter %d is %v; SGD has %v", from, count, i, p[i], alone[count-1][i])
				}
				mean := 0.0
				for _, past := range averaged {
					mean += past[i]
				}
				mean /= float64(len(averaged))
				if from > count {
					mean = p[i]
				}
				if math.Abs(states[0][i]-mean) > 1e-12 {
					t.Errorf("from %d: update %d: the average of parameter %d is %v; want %v", from, count, i, states[0][i], mean)
				}
			}
		})
	}
}
