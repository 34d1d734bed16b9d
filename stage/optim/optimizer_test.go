package optim

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// twin computes the optimizers as their papers define them, for one number at a time.
type twin struct {
	Settings
	b, m, v float64
}

func (w *twin) step(p, g float64, s Step, count int, noDecay bool) float64 {
	g *= s.GradScale
	decay := w.WeightDecay
	if noDecay {
		decay = 0
	}
	if w.Kind == SGD {
		g += decay * p
		w.b = w.Momentum*w.b + g
		if w.Nesterov {
			return p - s.Rate*(g+w.Momentum*w.b)
		}
		return p - s.Rate*w.b
	}
	if w.Kind == Adam {
		g += decay * p
	} else {
		p -= s.Rate * decay * p
	}
	w.m = w.Beta1*w.m + (1-w.Beta1)*g
	w.v = w.Beta2*w.v + (1-w.Beta2)*g*g
	mean := w.m / (1 - math.Pow(w.Beta1, float64(count)))
	variance := w.v / (1 - math.Pow(w.Beta2, float64(count)))
	return p - s.Rate*mean/(math.Sqrt(variance)+w.Epsilon)
}

func TestStepsAreThoseOfThePapers(t *testing.T) {
	runtime.LockOSThread()
	e := testEngine(t)
	dev, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Settings{
		{Kind: SGD}, {Kind: SGD, WeightDecay: 0.1}, {Kind: SGD, Momentum: 0.9}, {Kind: SGD, Momentum: 0.9, Nesterov: true,
			WeightDecay: 0.01},
		{Kind: Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, {Kind: Adam, Beta1: 0.8, Beta2: 0.9, Epsilon: 1e-3,
			WeightDecay: 0.1},
		{Kind: AdamW, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1},
	} {
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for _, noDecay := range []bool{false, true} {
			values := []float64{1, -2, 0.5, 0}
			twins := make([]twin, len(values))
			slot := Slot{Param: tensor(t, e, dev, values), NoDecay: noDecay}
			for range s.States() {
				slot.State = append(slot.State, tensor(t, e, dev, make([]float64, len(values))))
			}
			for count := 1; count <= 5; count++ {
				step := Step{Rate: 0.1 / float64(count), GradScale: []float64{1, 0.5}[count%2]}
				grads := make([]float64, len(values))
				for i, p := range values {
					grads[i] = p*p - float64(i)*0.3 + 0.1
					twins[i].Settings = s
					values[i] = twins[i].step(p, grads[i], step, count, noDecay)
				}
				slot.Grad, slot.Count = tensor(t, e, dev, grads), count
				if err := s.Apply(dev, step, []Slot{slot}); err != nil {
					t.Fatal(err)
				}
				slot.Grad.Free()
				for i, got := range numbers(t, dev, slot.Param) {
					if math.Abs(got-values[i]) > tolerance(e) {
						t.Errorf("%+v: step %d: parameter %d is %v; want %v", s, count, i, got, values[i])
					}
				}
			}
			slot.Param.Free()
			for _, x := range slot.State {
				x.Free()
			}
		}
	}
	if n := dev.Close(); n != 0 {
		t.Errorf("%d handles leaked", n)
	}
}

func tolerance(e engine.Engine) float64 {
	if e.Float() == engine.Float64 {
		return 1e-12
	}
	return 3e-6
}

func tensor(t *testing.T, e engine.Engine, dev engine.Device, values []float64) engine.Tensor {
	t.Helper()
	var data []byte
	if e.Float() == engine.Float64 {
		data = engine.Bytes(values)
	} else {
		narrow := make([]float32, len(values))
		for i, v := range values {
			narrow[i] = float32(v)
		}
		data = engine.Bytes(narrow)
	}
	x, err := dev.FromBytes(e.Float(), []int64{int64(len(values))}, data)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func numbers(t *testing.T, dev engine.Device, x engine.Tensor) []float64 {
	t.Helper()
	data, err := dev.(viewer).View(x)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, x.Shape()[0])
	for i := range out {
		if x.DType() == engine.Float64 {
			out[i] = engine.Numbers[float64](data)[i]
		} else {
			out[i] = float64(engine.Numbers[float32](data)[i])
		}
	}
	return out
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		says string
	}{
		{Settings{Kind: "lion"}, `"lion"`},
		{Settings{Kind: SGD, Momentum: 1}, "momentum is 1"},
		{Settings{Kind: SGD, Nesterov: true}, "nesterov is of sgd with momentum"},
		{Settings{Kind: SGD, WeightDecay: -1}, "weight_decay is -1"},
		{Settings{Kind: SGD, WeightDecay: math.NaN()}, "NaN"},
		{Settings{Kind: Adam, Beta1: 0.9, Beta2: 1, Epsilon: 1}, "beta2 is 1"},
		{Settings{Kind: Adam, Beta1: -0.1, Beta2: 0.9, Epsilon: 1}, "beta1 is -0.1"},
		{Settings{Kind: AdamW, Beta1: 0.9, Beta2: 0.9}, "epsilon is 0"},
		{Settings{Kind: Adam, Momentum: 0.9}, "momentum"},
		{Settings{Kind: LARS}, "trust is 0"},
		{Settings{Kind: LARS, Trust: math.Inf(1)}, "trust is +Inf"},
		{Settings{Kind: LARS, Trust: 1, Nesterov: true, Momentum: 0.5}, "nesterov is of sgd"},
		{Settings{Kind: SGD, Trust: 1}, "trust is of lars"},
		{Settings{Kind: ASGD}, "average_from is 0"},
		{Settings{Kind: ASGD, AverageFrom: 1, Momentum: 0.5}, "momentum"},
		{Settings{Kind: AdamW, Beta1: 0.9, Beta2: 0.9, Epsilon: 1, AverageFrom: 3}, "average_from is of asgd"},
	} {
		if err := c.s.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
	for _, kind := range Kinds() {
		s, err := Default(kind)
		if err != nil || s.Check() != nil {
			t.Error(kind, err, s.Check())
		}
	}
}

func TestAnErrorNamesTheParameter(t *testing.T) {
	runtime.LockOSThread()
	e := testEngine(t)
	dev, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	slots := []Slot{
		{Param: tensor(t, e, dev, []float64{1}), Grad: tensor(t, e, dev, []float64{1})},
		{Param: tensor(t, e, dev, []float64{1, 2}), Grad: tensor(t, e, dev, []float64{1, 2, 3})},
	}
	s := Settings{Kind: SGD}
	err = s.Apply(dev, Step{Rate: 1, GradScale: 1}, slots)
	if err == nil || !strings.Contains(err.Error(), "parameter 1") {
		t.Error(err)
	}
}

// viewer is a device whose tensors lie in host memory.
type viewer interface {
	View(t engine.Tensor) ([]byte, error)
}
