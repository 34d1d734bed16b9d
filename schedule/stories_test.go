package schedule_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/draw"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestStories tells what Programs look like, and what Check says, in testdata. Record new output with
// -rewrite, and read it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var w storyWorld
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := w.do(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

type storyWorld struct {
	p *schedule.Program
}

func (w *storyWorld) do(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "generate":
		return w.generate(t, d)
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
		return w.lists(), nil
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
		return w.lists(), nil
	case "check":
		r, err := check.Check(w.p)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("instructions %d, messages %d, peak activations %v\n", r.Instructions, r.Messages,
			r.PeakActivations), nil
	case "draw":
		s := draw.UnitSlots
		d.MaybeScanArgs(t, "f", &s.F)
		d.MaybeScanArgs(t, "b", &s.B)
		d.MaybeScanArgs(t, "transfer", &s.Transfer)
		dr, err := draw.Draw(w.p, s)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%sslots %d, bubble %.1f%%\n", dr, dr.Slots, 100*dr.Bubble()), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

func (w *storyWorld) generate(t *testing.T, d *datadriven.TestData) (string, error) {
	var order string
	stages, micro, replicas, repeat := 1, 1, 1, 1
	d.ScanArgs(t, "family", &order)
	d.MaybeScanArgs(t, "stages", &stages)
	d.ScanArgs(t, "micro", &micro)
	d.MaybeScanArgs(t, "replicas", &replicas)
	d.MaybeScanArgs(t, "repeat", &repeat)
	s := schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: micro, Repeat: repeat}
	if replicas > 1 {
		s.Placement = nil
		for i := range stages {
			var on []int
			for r := range replicas {
				on = append(on, i*replicas+r)
			}
			s.Placement = append(s.Placement, on)
		}
	}
	if d.HasArg("split") {
		s.Replication = schedule.Split
	}
	for _, a := range d.CmdArgs {
		if a.Key != "k" {
			continue
		}
		for _, v := range a.Vals {
			k, err := strconv.Atoi(v)
			if err != nil {
				return "", err
			}
			s.Warmup = append(s.Warmup, k)
		}
	}
	p, err := family.Generate(order, s)
	if err != nil {
		return "", err
	}
	w.p = p
	return w.lists(), nil
}

// lists is the Program's lists without its settings.
func (w *storyWorld) lists() string {
	_, body, _ := strings.Cut(w.p.Text(), "\nbody\n")
	return body
}
