package reporting

import (
	"testing"
	"time"

	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
)

// A run of 2 steps takes 5 s. Ten minutes later it is resumed for one step of 2 s, and an hour later again: no step is
// left then, and step 3 is evaluated once more, for 4 s.
func TestTheDurationHasNoPauses(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	const second, third = 600, 4200
	r := &folder.Run{
		Parts: []folder.Part{{First: 0, End: 2, Start: &folder.Start{Began: at(0)}},
			{First: 2, End: 3, Start: &folder.Start{Began: at(second)}},
			{First: 3, End: -1, Start: &folder.Start{Began: at(third)}}},
		Steps:     []metrics.StepValues{{Step: 1, Time: at(2)}, {Step: 2, Time: at(4)}, {Step: 3, Time: at(second + 2)}},
		Evaluated: []metrics.EvaluationValues{{Step: 2, Time: at(5)}, {Step: 3, Time: at(third + 4)}},
	}
	if began, took := lasted(r); !began.Equal(at(0)) || took != (5+2+4)*time.Second {
		t.Errorf("began %v, took %v; want 11 s", began, took)
	}
	// A start without a step is no part. It evaluates step 2 for 3 s, and this record replaces the one of the first start.
	const between = 1000
	r.Begins = []time.Time{at(0), at(second), at(between), at(third)}
	r.Evaluated[0].Time = at(between + 3)
	if _, took := lasted(r); took != (4+2+3+4)*time.Second {
		t.Errorf("with a start that is no part: %v; want 13 s", took)
	}
	if began, took := lasted(&folder.Run{Parts: []folder.Part{{End: -1}}}); !began.IsZero() || took != 0 {
		t.Errorf("a folder without starts: %v, %v", began, took)
	}
}
