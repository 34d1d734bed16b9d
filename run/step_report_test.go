package run

import (
	"testing"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// A step's report says for each worker, in any process, how long it computed and how many bytes it holds. It also says
// how many bytes the worker has sent and received until then. These numbers are the sums of the sends in the Timeline.
func TestAStepSaysWhatWorkersDid(t *testing.T) {
	for _, of := range [][]int{{0, 0, 0}, {0, 1, 1}} {
		c := small(t, 3, 4)
		c.Keep.Steps, c.Train.Clip = 4, 0.5
		var last StepReport
		c.Hooks.OnStep = func(s StepReport) { last = s }
		tl := worlds{of: of, carriers: pipe.New}.train(t.Context(), t, c).whole(t).Timeline
		if len(last.Workers) != 3 || last.GradientNorm <= 0 {
			t.Fatalf("%+v", last)
		}
		sent, came := make([]int64, 3), make([]int64, 3)
		for _, e := range tl.Events {
			switch e.Kind {
			case "SF":
				sent[e.Worker] += e.Bytes
				came[e.Worker+1] += e.Bytes
			case "SB":
				sent[e.Worker] += e.Bytes
				came[e.Worker-1] += e.Bytes
			case "GN": // a worker sends its GN to each of the two others
				sent[e.Worker] += 2 * e.Bytes
				for k := range came {
					if k != e.Worker {
						came[k] += e.Bytes
					}
				}
			}
		}
		busy := tl.Computed[len(tl.Computed)-1].BusyS
		for k, did := range last.Workers {
			want := control.Did{BusyS: busy[k], PeakBytes: did.PeakBytes, LiveBytes: did.LiveBytes, SentBytes: sent[k],
				ReceivedBytes: came[k]}
			if did != want || did.LiveBytes <= 0 || did.PeakBytes < did.LiveBytes || sent[k] == 0 {
				t.Errorf("processes %v, worker %d: %+v, want %+v", of, k, did, want)
			}
		}
	}
}
