package tune

import (
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
)

// TestManyDevicesTakeLittleMemory: the memory for estimates and costs of ten thousand devices, on one stage and on two,
// grows in proportion to the number of devices. If it grew with the square of that number, it would be gigabytes.
func TestManyDevicesTakeLittleMemory(t *testing.T) {
	c, err := cluster.Preset("dapple-a:100x100")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Build("gpt", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Analytic(m, c.DeviceTypes, []int{1, 2, 4}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSearch(Request{Profile: p, Cluster: c, Batch: 64})
	if err != nil {
		t.Fatal(err)
	}
	n, all := len(p.Layers), len(c.Devices)
	for _, h := range []*shape{
		{cuts: []int{0, n}, counts: []int{all}},
		{cuts: []int{0, n / 2, n}, counts: []int{all / 2, all - all/2}},
	} {
		h.order, h.again, h.size, h.family = s.orders[0],
			slices.Repeat([]plan.Recompute{plan.KeepAll}, len(h.counts)), 1, "1f1b"
		h.depth = slices.Repeat([]int{1}, len(h.counts))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.estimator.estimate(h)
		if _, err := sim.CostsOf(p, c, s.plan(h)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%d devices on %v: %d MiB were allocated", all, h.counts, took>>20)
		}
	}
}
