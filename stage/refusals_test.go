package stage

import (
	"slices"
	"strings"
	"testing"
)

func TestMistakesAreRefused(t *testing.T) {
	b := newLab(t, doubles(t), 0, 3)
	defer b.close()
	front, back := b.stages[0], b.stages[1]
	says := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want something about %q", err, want)
		}
	}
	_, err := front.Backward(7, nil, 1)
	says(err, "no forward")
	_, _, err = back.Forward(Micro{ID: 1, Rows: 2}, b.feeds(back, 2, 1))
	says(err, "a.out has not been given")
	out, _, err := front.Forward(Micro{ID: 1, Rows: 2}, b.feeds(front, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = front.Forward(Micro{ID: 1, Rows: 2}, b.feeds(front, 2, 1))
	says(err, "twice")
	given := b.feeds(front, 2, 1)
	for v, x := range out {
		given[v] = x
	}
	_, _, err = front.Forward(Micro{ID: 2, Rows: 2}, given)
	says(err, "4 tensors given")
	_, err = New(Config{Device: b.dev, Graph: front.Graph, First: 4, Last: 3})
	says(err, "layers 4 to 3")
}

// A second request for the same backward is refused, and the remaining half is not lost.
func TestARefusedBackwardLosesNoHalf(t *testing.T) {
	b := newLab(t, doubles(t), 0)
	defer b.close()
	s := b.stages[0]
	gradient := func(again bool) []float64 {
		b.forward(1, 2, 1)
		if _, err := s.BackwardInput(1, nil, 1); err != nil {
			t.Fatal(err)
		}
		if again {
			if _, err := s.BackwardInput(1, nil, 1); err == nil {
				t.Error("a micro-batch went back twice")
			}
		}
		if err := s.BackwardWeight(1); err != nil {
			t.Fatal(err)
		}
		if err := s.Gradients.Gather(); err != nil {
			t.Fatal(err)
		}
		values := must(Values(b.dev, s.Params.Learned[0].Gradient()))
		if err := s.Gradients.Forget(s.Params.Learned); err != nil {
			t.Fatal(err)
		}
		return values
	}
	want := gradient(false)
	if got := gradient(true); !slices.Equal(got, want) || slices.Max(want) == 0 {
		t.Errorf("the gradient is %v; it was %v", got, want)
	}
}
