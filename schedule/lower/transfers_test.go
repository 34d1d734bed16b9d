package lower_test

import (
	"runtime"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestLoweringTakesMemoryByTheList bounds lowering's memory by a multiple of the size of the lists. The cases are
// transfers beside pairs and single instructions, and collectives of many stages on one worker.
func TestLoweringTakesMemoryByTheList(t *testing.T) {
	pairs, err := family.Generate("fbp-as", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4000})
	if err != nil {
		t.Fatal(err)
	}
	const stages = 2000
	many, err := family.Generate("zb-auto", schedule.Settings{Placement: schedule.Wrap(1, stages), MicroBatches: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*schedule.Program{pairs, many} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		q, err := lower.Lower(p, lower.Options{Clip: true})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if took, n := after.TotalAlloc-before.TotalAlloc, q.Instructions(); took > 1000*uint64(n) {
			t.Errorf("%s: %d bytes were taken for %d instructions", p.Name, took, n)
		}
	}
}
