package data

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// TestHead: Head returns the first samples of a split. Every epoch has each of these samples once, in a new order.
func TestHead(t *testing.T) {
	set, err := Open("digits", Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	const n, batch = 40, 10
	head, err := Head(set.Train, n)
	if err != nil {
		t.Fatal(err)
	}
	if head.Len() != n {
		t.Fatalf("%d samples; want %d", head.Len(), n)
	}
	whole := set.Train.(*table)
	inOrder := *whole
	inOrder.order.keep = true
	want := map[string]int{}
	first, err := inOrder.Batch(0, n, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	for r := range n {
		want[fmt.Sprint(first["input"].Floats[r*whole.width:(r+1)*whole.width])]++
	}
	var epochs [2][]string
	for e := range epochs {
		for b := range n / batch {
			got, err := head.Batch(e*n/batch+b, batch, 0, batch)
			if err != nil {
				t.Fatal(err)
			}
			for r := range batch {
				epochs[e] = append(epochs[e], fmt.Sprint(got["input"].Floats[r*whole.width:(r+1)*whole.width]))
			}
		}
		seen := map[string]int{}
		for _, k := range epochs[e] {
			seen[k]++
		}
		if !maps.Equal(seen, want) {
			t.Errorf("epoch %d is not the first %d samples, each once", e, n)
		}
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("both epochs have one order")
	}
	for _, bad := range []int{0, -1, set.Train.Len() + 1} {
		if _, err := Head(set.Train, bad); err == nil {
			t.Errorf("the first %d samples: want a refusal", bad)
		}
	}
	if _, err := Head(Synthetic(8, []Field{{Name: "input"}}), 4); err == nil {
		t.Error("of synthetic data: want a refusal")
	}
}

func TestHeadOfAText(t *testing.T) {
	whole := &text[byte]{order: newOrder(10, 1, false), all: make([]byte, 31), context: 3,
		pair: pair{Field{"x", []int{3}, Int, nil}, Field{"y", []int{3}, Int, nil}}}
	for i := range whole.all {
		whole.all[i] = byte(i)
	}
	head, err := Head(whole, 4)
	if err != nil {
		t.Fatal(err)
	}
	if head.Len() != 4 {
		t.Fatalf("%d windows; want 4", head.Len())
	}
	b, err := head.Batch(0, 4, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	var starts []int64
	for r := range 4 {
		starts = append(starts, b["x"].Ints[3*r])
	}
	slices.Sort(starts)
	if !slices.Equal(starts, []int64{0, 3, 6, 9}) || slices.Max(b["y"].Ints) != 12 {
		t.Errorf("windows begin at %v, the last target is %d", starts, slices.Max(b["y"].Ints))
	}
}
