package rules

import "testing"

func TestRecordedShapes(t *testing.T) {
	grows := Recorded{Once: []int64{4, 3, 5}, Twice: []int64{8, 3, 9}, Fixed: []bool{false, true, false}}
	groups := Recorded{Once: []int64{1, 3}, Twice: []int64{1, 3}, Fixed: []bool{false, true}}
	for _, c := range []struct {
		of    Recorded
		shape []int64
		rows  int64
		want  bool
	}{
		{Recorded{}, []int64{1, 2}, 4, true},
		{Recorded{Once: []int64{}}, []int64{1}, 4, false},
		{Recorded{Once: []int64{4, 3}}, []int64{4, 3}, 4, true},
		{Recorded{Once: []int64{4, 3}}, []int64{4, 5}, 4, false},
		{Recorded{Once: []int64{4, 3}}, []int64{6, 5}, 6, true},
		{Recorded{Once: []int64{4, 3}}, []int64{6}, 6, false},
		{grows, []int64{8, 3, 9}, 8, true},
		{grows, []int64{8, 3, 8}, 8, false},
		{grows, []int64{12, 3, 77}, 12, true},
		{grows, []int64{12, 4, 13}, 12, false},
		{groups, []int64{4, 3}, 64, true},
		{groups, []int64{4, 2}, 64, false},
		{grows, []int64{2, 1, 3}, 2, true}, // a recorded size that is a limit may also be smaller
	} {
		if got := c.of.Agrees(c.shape, c.rows, 4); got != c.want {
			t.Errorf("%v with %d rows, of %v: %v", c.shape, c.rows, c.of, got)
		}
	}
}
