package registry

import (
	"slices"
	"testing"
)

func TestRegistry(t *testing.T) {
	r := New[int]("planner")
	r.Add("b", 2)
	r.Add("a", 1)
	if got := r.All(); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("all are %v; want them by name", got)
	}
	if v, err := r.Find("b"); v != 2 || err != nil {
		t.Errorf("b is %d, error %v", v, err)
	}
	if _, err := r.Find("c"); err == nil || err.Error() != `there is no planner "c"; there are a, b` {
		t.Errorf("error is %v", err)
	}
	r.Remove("a")
	if got := r.Names(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("remove a: %v is left", got)
	}
	defer func() {
		if got := recover(); got != "planner b is registered twice" {
			t.Errorf("a second b panics with %v", got)
		}
	}()
	r.Add("b", 3)
}
