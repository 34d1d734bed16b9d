package run

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/blocking"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// With the fewest slots that its order needs, every family trains to the same bits as without a bound. Successive cases
// use different carriers. One slot is enough for some orders. With one slot less than needed, the run is refused before
// it begins.
func TestFewSlotsChangeNothing(t *testing.T) {
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8, 7, 6, 5, 4, 4}, "classes": 4, "dropout": 0.2})
	names := []string{"in-process", "pipe", "blocking", "tcp"}
	over := []func(int) ([]wire.Carrier, error){wire.InProcess, pipe.New, blocking.New, tcp.New}
	single, refused, tried := map[string]int{}, 0, 0
	for _, f := range family.All() {
		for _, workers := range []int{2, 3} {
			for _, policy := range append([]schedule.Policy{schedule.Sync}, f.Policies...) {
				on := f.Placement(workers, 2)
				if f.Streaming || len(on) > len(m.Layers) {
					continue
				}
				pl := planOf(m, evenCuts(len(m.Layers), len(on)), 2, 6, f.Name)
				for s := range pl.Stages {
					pl.Stages[s].Devices = on[s]
				}
				if pl.Weights = string(policy); !policy.Flushes() {
					pl.MicroBatches = 1
				}
				if policy == schedule.Elastic {
					pl.Elastic, pl.MicroBatches = plan.NewElastic(2), 3
				}
				c := basic(t, testEngine(t), m, pl, 4, 4)
				if policy.Flushes() {
					c.Train.Clip = 0.5
				}
				p, err := programs.Build(pl, m.TiedLayers(), c.Train.Clip > 0, c.Train.Steps)
				if err != nil {
					continue // the family does not allow this order
				}
				least, err := machine.LeastSlots(p)
				if err != nil || least == 0 {
					t.Fatal(least, err)
				}
				c.Wire.Carriers = wire.InProcess
				want, err := Train(t.Context(), c)
				if err != nil {
					continue // runs do not execute this order
				}
				k := tried % len(over)
				tried++
				c.Wire.Carriers, c.Wire.Slots = over[k], least
				what := fmt.Sprintf("%s %s on %d workers, %d slots, %s", f.Name, policy, workers, least, names[k])
				got, err := Train(t.Context(), c)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				if policy.Served() { // the order of updates depends on timing, so compare with the recorded order
					c.Wire.Carriers, c.Wire.Slots, c.Train.Replay = wire.InProcess, 0, got.Timeline.Applied
					if want, err = Train(t.Context(), c); err != nil {
						t.Errorf("%s, replayed: %v", what, err)
						continue
					}
				}
				if err := sameWeights(want.Weights, got.Weights); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if least == 1 {
					single[f.Name]++
					continue
				}
				var stall *machine.StallError
				c.Wire.Slots = least - 1
				if _, err := Train(t.Context(), c); !errors.As(err, &stall) {
					t.Errorf("%s, one less: %v", what, err)
				}
				refused++
			}
		}
	}
	t.Logf("%d runs; with one slot %v; %d refused with one less", tried, single, refused)
	if tried < 30 || single["dp"] == 0 || single["chimera"] == 0 || single["1f1b"] == 0 || refused == 0 {
		t.Errorf("%d runs; with one slot %v; %d refused with one less", tried, single, refused)
	}
}
