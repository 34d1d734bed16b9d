package planning

import (
	"strings"
	"testing"
)

func TestWorkersOfWhichThereIsTheSameToSay(t *testing.T) {
	var a alike
	for w := range 12 {
		a.add(w, []string{"x", "y"}[min(1, w%5)])
	}
	a.add(13, "y")
	var got []string
	a.each(func(workers []int, text string) { got = append(got, text+": "+list(workers)) })
	if want := "x: 0, 5, 10; y: 1-4, 6-9, 11, 13"; strings.Join(got, "; ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
