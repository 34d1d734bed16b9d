package run

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/optim"
)

func TestTimerMeasuresEveryLayer(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "gpt", map[string]any{"layers": 2, "width": 32, "heads": 2, "context": 16, "vocabulary": 30})
	timer, err := NewTimer(e, noise{model: m, classes: 30, rows: 1000}, optim.Settings{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Measure(t.Context(), m, timer, profile.Options{MicroBatches: []int{1, 4}, Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Layers {
		for _, c := range l.Costs {
			if c.ForwardS <= 0 || c.BackwardS <= 0 || c.OutputBytes <= 0 || c.SavedBytes < c.OutputBytes || c.ForwardPeakBytes < c.SavedBytes {
				t.Errorf("%s: %+v", l.Name, c)
			}
		}
		t.Logf("%-18s update %.1fus %+v", l.Name, l.UpdateS*1e6, l.Costs[1])
	}
	if p.OptimizerStates != 2 || p.Transfer.LatencyS <= 0 || p.Transfer.BandwidthBytesPerSecond < 1e8 || p.Transfer.DispatchS > 1e-3 {
		t.Errorf("%+v", p.Transfer)
	}
	t.Logf("%+v", *p.Transfer)
}
