package planning

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// Workers with the same stages share a row. What differs among them is a range, a worker that holds the weights for
// others has its own row, and a row says which of its stages recompute.
func TestARowOfWorkersHidesNoDifference(t *testing.T) {
	layers := []profile.Layer{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	one := func(from, to int, again plan.Recompute, devices ...int) plan.Stage {
		return plan.Stage{FirstLayer: from, LastLayer: to, Recompute: again, Devices: devices}
	}
	for name, k := range map[string]struct {
		plan plan.Plan
		want []string
	}{
		"a server": {plan.Plan{Weights: "asp", Stages: []plan.Stage{one(0, 3, plan.KeepAll, 0, 1, 2)},
			Predicted: &plan.Predicted{BusyS: []float64{2, 2, 1}, MemoryBytes: []int64{2048, 2048, 4096},
				PeakActivations: []int{1, 1, 0}}},
			[]string{"0, 1    0      0-3 a .. d  2,000 ms  2.00 KiB          1",
				"2       0      0-3 a .. d  1,000 ms  4.00 KiB          0"}},
		"unlike replicas": {plan.Plan{Weights: "stash", Stages: []plan.Stage{one(0, 3, plan.KeepAll, 0, 1)},
			Predicted: &plan.Predicted{BusyS: []float64{2, 2.0001}, MemoryBytes: []int64{1024, 4096},
				PeakActivations: []int{2, 1}}},
			[]string{"0, 1    0      0-3 a .. d  2,000 ms  1.00 to 4.00 KiB     1 to 2"}},
		"some recompute": {plan.Plan{Weights: "sync", Stages: []plan.Stage{one(0, 0, plan.KeepInput, 0),
			one(1, 1, plan.KeepAll, 0), one(2, 2, plan.Every(2), 0), one(3, 3, plan.KeepInput, 0)}},
			[]string{"0       0-3    0 a, 1 b, 2 c, 3 d  stage: 0, 3; every 2: 2"}},
		"all recompute": {plan.Plan{Weights: "sync", Stages: []plan.Stage{one(0, 1, plan.KeepInput, 0),
			one(2, 3, plan.KeepInput, 0)}}, []string{"0       0, 1   0-1 a .. b, 2-3 c .. d  stage"}},
	} {
		var out bytes.Buffer
		v := &view{Prepared: &prepare.Prepared{Plan: &k.plan, Profile: &profile.Profile{Layers: layers}}, to: &out,
			Screen: terminal.Of(&out)}
		v.workers()
		said := strings.ReplaceAll(out.String(), "\u00a0", " ")
		for _, want := range k.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", name, want, said)
			}
		}
	}
}
