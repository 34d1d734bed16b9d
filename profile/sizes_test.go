package profile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEverySizeIsWorkedOut(t *testing.T) {
	cost := func(n int64) Cost {
		c := Cost{Device: "cpu", MicroBatch: int(n), PendingBytes: new(int64), PendingInputBytes: new(int64),
			HalvesPeakBytes: &HalvesPeaks{}}
		for i, at := range c.sizes() {
			*at = n * int64(i+1)
		}
		return c
	}
	a, b, was := cost(2), cost(10), cost(2)
	got := between(a, b, 4)
	if d := cmp.Diff(cost(4), got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(cost(6), a.times(3), cmp.FilterPath(func(p cmp.Path) bool {
		return p.String() == "MicroBatch"
	}, cmp.Ignore())); d != "" {
		t.Error(d)
	}
	*got.PendingBytes, got.HalvesPeakBytes.Weight = -1, -1
	if d := cmp.Diff(was, a); d != "" {
		t.Errorf("what is worked out shares memory with what it comes from: %s", d)
	}
	unknown := cost(10)
	unknown.HalvesPeakBytes = nil
	for _, c := range []Cost{between(a, unknown, 4), between(unknown, a, 4)} {
		if c.HalvesPeakBytes != nil || c.PendingBytes == nil {
			t.Errorf("of sizes that one side does not know: %+v", c)
		}
	}
	unknown.PendingBytes = nil
	if c := between(a, unknown, 4); c.PendingBytes != nil {
		t.Errorf("of sizes that one side does not know: %+v", c)
	}
}
