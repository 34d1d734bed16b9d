package machine_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// TestStories tests, with the cases in testdata, when a Machine lets workers start.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

type storyWorld struct {
	p *schedule.Program
	m *machine.Machine
}

func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	var err error
	switch d.Cmd {
	case "program":
		order, settings := scheduletest.Order(t, d)
		if order == "evaluation" {
			w.p, err = programs.Evaluation(settings.Placement, settings.MicroBatches)
		} else if w.p, err = family.Generate(order, settings); err == nil {
			w.p, err = lower.Lower(w.p, lower.Options{})
		}
		if err != nil {
			return "", err
		}
		return scheduletest.Lists(w.p), nil
	case "machine":
		var o machine.Options
		cores := 0
		d.MaybeScanArgs(t, "cores", &cores)
		o.Cores = machine.Share(cores)
		d.MaybeScanArgs(t, "ahead", &o.Ahead)
		d.MaybeScanArgs(t, "slots", &o.Slots)
		w.m, err = machine.New(w.p, o)
		return "", err
	case "do":
		return w.drive(d.Input)
	case "waits":
		var b strings.Builder
		waits := w.m.Waits()
		for _, n := range waits {
			fmt.Fprintln(&b, n)
		}
		if chain, closed := machine.Chain(w.p, waits); closed {
			fmt.Fprintln(&b, "circle:", machine.Circle(chain))
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// drive calls the Machine with one event from each line: "poll W", "start W", "issued W", "end W" (issued and done),
// "done W INSTRUCTION", "arrive W INSTRUCTION", or "credit W V" (a slot of W's edge to V).
func (w *storyWorld) drive(input string) (string, error) {
	var b strings.Builder
	for line := range strings.Lines(input) {
		f := append(strings.Fields(line), "", "")
		k, err := strconv.Atoi(f[1])
		if err != nil {
			return "", err
		}
		var in schedule.Instruction
		if f[0] == "done" || f[0] == "arrive" {
			if in, err = schedule.ParseInstruction(f[2]); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&b, "%s: ", strings.TrimSpace(line))
		switch f[0] {
		case "poll":
			fmt.Fprintln(&b, w.m.Poll(k))
		case "start":
			n := w.m.Poll(k)
			if !n.Ready() {
				fmt.Fprintln(&b, "no:", n)
				continue
			}
			fmt.Fprint(&b, n.At)
			if processor, has := w.m.Processor(k); has {
				fmt.Fprintf(&b, " on processor %d", processor)
			}
			w.m.Start(k)
			fmt.Fprintln(&b)
		case "issued", "end":
			fmt.Fprintln(&b, "poll again", w.m.Issued(k, f[0] == "end"))
		case "done":
			fmt.Fprintln(&b, "poll again", w.m.Done(k, in))
		case "arrive":
			fmt.Fprintln(&b, "poll again", w.m.Arrive(k, in))
		case "credit":
			to, err := strconv.Atoi(f[2])
			if err != nil {
				return "", err
			}
			fmt.Fprintln(&b, "poll again", w.m.Credit(k, to))
		}
	}
	return b.String(), nil
}
