package bench

import (
	"context"
	"testing"
)

func TestLargest(t *testing.T) {
	for _, want := range []int{4, 6, 62, 64, 130} {
		got, err := Largest(context.Background(), 2, func(layers int) (bool, error) { return layers <= want, nil })
		if err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
}
