package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// TestStories tests, with the cases in testdata, the lists and texts of Programs, the results of Check, and drawings.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

type storyWorld struct {
	p *schedule.Program
}

func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "generate":
		order, settings := scheduletest.Order(t, d)
		p, err := family.Generate(order, settings)
		if err != nil {
			return "", err
		}
		w.p = p
		return scheduletest.Lists(p), nil
	case "read":
		p, err := schedule.ParseText(strings.NewReader(d.Input))
		w.p = p
		if err != nil {
			return "", err
		}
		return "ok\n", nil
	case "text":
		return w.p.Text(), nil
	case "evaluation", "checkpoint":
		stages, n := 0, 1
		d.ScanArgs(t, "stages", &stages)
		d.MaybeScanArgs(t, "micro", &n)
		var err error
		if d.Cmd == "evaluation" {
			w.p, err = programs.Evaluation(schedule.Replicated(stages, 1), n)
		} else {
			w.p, err = programs.Checkpoint(schedule.Replicated(stages, 1))
		}
		if err != nil {
			return "", err
		}
		return scheduletest.Lists(w.p), nil
	case "lower":
		o := lower.Options{Clip: d.HasArg("clip")}
		if d.HasArg("tied") {
			o.Tied = [][]int{{0, w.p.Stages - 1}}
		}
		p, err := lower.Lower(w.p, o)
		if err != nil {
			return "", err
		}
		w.p = p
		return scheduletest.Lists(w.p), nil
	case "check":
		r, err := check.Check(w.p)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("instructions %d, messages %d, peak activations %v\n", r.Instructions, r.Messages,
			r.PeakActivations), nil
	case "draw":
		s := scheduletest.UnitSlots
		d.MaybeScanArgs(t, "f", &s.F)
		d.MaybeScanArgs(t, "b", &s.B)
		d.MaybeScanArgs(t, "transfer", &s.Transfer)
		dr, err := scheduletest.Draw(w.p, s)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%sslots %d, bubble %.1f%%\n", dr, dr.Slots, 100*dr.Bubble()), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}
