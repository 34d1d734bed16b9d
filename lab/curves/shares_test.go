package curves

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// shared returns four iterations of 10 s on two workers. In each iteration, stage 0 computes for 5 s, waits 3 s for a
// gradient, and updates for 1 s. Stage 1 waits 4 s and computes 5 s.
func shared(pipelines int) *trace.Timeline {
	t := &trace.Timeline{Version: trace.Version, Source: "run", Workers: 2, Stages: 2}
	for i := range 4 {
		at := 10 * float64(i)
		p := ""
		if pipelines > 1 {
			p = "p0/"
		}
		event := func(w int, text, kind string, start, end float64) {
			t.Events = append(t.Events, trace.Event{Worker: w, Step: i, Instruction: text, Kind: kind,
				Lane: trace.Compute, ReadyS: at + start, StartS: at + start, EndS: at + end})
		}
		event(0, p+"0F0", "F", 0, 4)
		event(0, p+"0B0", "B", 7, 8)
		event(0, p+"0U0", "U", 8, 9)
		event(1, p+"1F0", "F", 4, 5)
		event(1, p+"1B0", "B", 5, 9)
		if pipelines > 1 {
			event(0, "p2/0U0", "U", 9, 9.5)
		}
		t.Steps = append(t.Steps, trace.StepMark{Step: i, StartS: at, EndS: at + 10})
	}
	return t
}

func TestSharesAddUp(t *testing.T) {
	for _, pipelines := range []int{1, 2} {
		n := float64(pipelines)
		got, err := Shares(shared(pipelines), pipelines, 1)
		if err != nil {
			t.Fatal(err)
		}
		if a := got[0]; math.Abs(a.ComputeS-5/n) > 1e-9 || math.Abs(a.UpdateS-1/n) > 1e-9 ||
			math.Abs(a.ReferenceS-0.5/n*(n-1)) > 1e-9 {
			t.Errorf("%d pipelines: worker 0 %+v", pipelines, a)
		}
		for w, s := range got {
			if math.Abs(s.LengthS()-10/n) > 1e-9 {
				t.Errorf("%d pipelines: worker %d has %v s of a batch of %v: %+v", pipelines, w, s.LengthS(), 10/n, s)
			}
		}
		if m := Mean(got); math.Abs(m.ComputeS-5/n) > 1e-9 {
			t.Errorf("%d pipelines: on average %+v", pipelines, m)
		}
	}
}

func TestSharesRefuses(t *testing.T) {
	broken := shared(1)
	broken.Events[6].Instruction = "?"
	for _, c := range []struct {
		t               *trace.Timeline
		pipelines, skip int
		want            string
	}{
		{shared(1), 0, 1, "0 pipelines"},
		{shared(1), 1, 3, "4 iterations"},
		{shared(2), 2, 2, "4 iterations"},
		{broken, 1, 1, `"?"`},
	} {
		if _, err := Shares(c.t, c.pipelines, c.skip); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v; want it to say %s", err, c.want)
		}
	}
}
