package machine_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestStories tells, in testdata, how a Machine lets workers go. Record new output with -rewrite, and read
// it.
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
	m *machine.Machine
}

func (w *storyWorld) do(t *testing.T, d *datadriven.TestData) (string, error) {
	var err error
	switch d.Cmd {
	case "program":
		var order string
		stages, micro, replicas := 1, 1, 1
		d.ScanArgs(t, "family", &order)
		d.MaybeScanArgs(t, "stages", &stages)
		d.MaybeScanArgs(t, "micro", &micro)
		d.MaybeScanArgs(t, "replicas", &replicas)
		if order == "evaluation" {
			w.p, err = programs.Evaluation(schedule.Replicated(stages, replicas), micro)
		} else {
			w.p, err = family.Generate(order, schedule.Settings{Placement: schedule.Replicated(stages, replicas),
				MicroBatches: micro})
			if err == nil {
				w.p, err = lower.Lower(w.p, lower.Options{})
			}
		}
		if err != nil {
			return "", err
		}
		_, body, _ := strings.Cut(w.p.Text(), "\nbody\n")
		return body, nil
	case "machine":
		var o machine.Options
		d.MaybeScanArgs(t, "cores", &o.Cores)
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

// drive gives the Machine one event a line: "poll W", "start W", "issued W", "end W" (issued and done), "done
// W INSTRUCTION", "arrive W INSTRUCTION", "credit W V" (a slot of W's edge to V).
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
