package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// TestStories tests, with the cases in testdata, what Check refuses. It also tests OutOfOrder, InFlight, and
// machine.Play with few slots.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

type storyWorld struct {
	p *schedule.Program
}

// Do implements storytest.World.
//
//	program [family=F stages=S ...]    reads a Program: of a family, lowered, or given by lists and settings
//	lists                              prints the lowered lists
//	check                              prints the result of Check
//	order                              prints whether its sums have the bits of one worker
//	in-flight                          prints how many messages may be in flight on each edge
//	play slots=N                       prints whether it ends with N slots on each edge
func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "program":
		return "", w.program(t, d)
	case "lists":
		return scheduletest.Lists(w.p), nil
	case "check":
		r, err := check.Check(w.p)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("it can run: %d instructions, %d messages; by worker %v micro-batches in flight, %v versions\n",
			r.Instructions, r.Messages, r.PeakActivations, r.Versions), nil
	case "order":
		if err := check.OutOfOrder(w.p, false); err != nil {
			return "", err
		}
		return "the bits of one worker\n", nil
	case "in-flight":
		most, err := check.InFlight(w.p)
		if err != nil {
			return "", err
		}
		var lines []string
		for e, n := range most {
			lines = append(lines, fmt.Sprintf("worker %d to %d: %d\n", e.From, e.To, n))
		}
		slices.Sort(lines)
		return strings.Join(lines, ""), nil
	case "play":
		var o machine.Options
		d.ScanArgs(t, "slots", &o.Slots)
		m, err := machine.Play(w.p, o)
		if err != nil {
			return "", err
		}
		if m.Ended() {
			return "it ends\n", nil
		}
		var b strings.Builder
		for _, n := range m.Waits() {
			fmt.Fprintln(&b, n)
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// program reads a Program and adds the settings that a story leaves out, or generates it with a family.
func (w *storyWorld) program(t *testing.T, d *datadriven.TestData) (err error) {
	if d.Input != "" {
		text := schedule.TextHeader + "\n"
		for _, usual := range []string{"period 1", "repeat 1", "weights sync", "replication round_robin", "lowered false"} {
			if name, _, _ := strings.Cut(usual, " "); !strings.Contains("\n"+d.Input, "\n"+name+" ") {
				text += usual + "\n"
			}
		}
		w.p, err = schedule.ParseText(strings.NewReader(text + d.Input))
		return err
	}
	order, settings := scheduletest.Order(t, d)
	p, err := family.Generate(order, settings)
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	w.p = p
	return nil
}
